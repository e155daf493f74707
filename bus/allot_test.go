package bus_test

import (
	"context"
	"testing"

	"github.com/megaframework/mega/bus"
)

func TestSubscriptionsShareTheAllocationsOfAnEvent(t *testing.T) {
	for subscriptions, most := range map[int]float64{1: 2, 8: 5} {
		b := newBus(t, bus.Config{})
		busy, release := make(chan struct{}, subscriptions), make(chan struct{})
		for range subscriptions {
			subscribe(t, b, "x", func(context.Context, *bus.Msg) error {
				select {
				case busy <- struct{}{}:
				default:
				}
				<-release
				return nil
			})
		}
		publish(t, b, "x", "")
		for range subscriptions {
			<-busy
		}
		data := make([]byte, 128)
		got := testing.AllocsPerRun(100, func() {
			if err := b.Publish(t.Context(), "x", data); err != nil {
				t.Error(err)
			}
		})
		close(release)
		if got > most {
			t.Errorf("an event for %d subscriptions takes %v allocations, want at most %v", subscriptions, got, most)
		}
	}
}
