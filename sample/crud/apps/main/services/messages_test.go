package services

import (
	"context"
	"errors"
	"testing"

	"github.com/megaframework/mega/bus"
)

// After an outage nobody knows how many messages were missed.
func TestASlowSubscriberEndsAtAGapOfUnknownSize(t *testing.T) {
	for _, sent := range []int{0, 5} {
		s := newSlowSubscriber(sent)
		if sent == 0 {
			s.finish()
		}
		for range 2 {
			if err := s.gap(context.Background(), -1); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-s.all:
		default:
			t.Fatalf("%d sent: it waits for messages that nobody counts", sent)
		}
		if want := sent > 0; errors.Is(s.err, bus.ErrDisconnected) != want {
			t.Errorf("%d sent: %v", sent, s.err)
		}
	}
}
