package redis

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// beats runs a heartbeater on fake time while fn schedules heartbeats, and returns
// when they came. Each takes took, and asks for the next one after next.
func beats(t *testing.T, took, next time.Duration, fn func(b *heartbeater)) (at []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, end := context.WithCancel(t.Context())
		b := newHeartbeater(func(context.Context) time.Duration {
			at = append(at, time.Since(start))
			time.Sleep(took)
			return next
		})
		b.start(ctx)
		fn(b)
		time.Sleep(time.Second)
		end()
		b.wait()
	})
	return at
}

func TestHeartbeatComesAtTheEarliestTime(t *testing.T) {
	at := beats(t, 0, 0, func(b *heartbeater) {
		b.within(600 * time.Millisecond)
		b.within(20 * time.Millisecond)
		b.within(700 * time.Millisecond)
	})
	if want := []time.Duration{20 * time.Millisecond}; !slices.Equal(at, want) {
		t.Errorf("heartbeats at %v, want %v", at, want)
	}
}

func TestHeartbeatsGoOnWhileThereAreTickets(t *testing.T) {
	at := beats(t, 100*time.Millisecond, 250*time.Millisecond, func(b *heartbeater) { b.within(200 * time.Millisecond) })
	if want := []time.Duration{200 * time.Millisecond, 550 * time.Millisecond, 900 * time.Millisecond}; !slices.Equal(at, want) {
		t.Errorf("heartbeats at %v, want %v", at, want)
	}
}

// A ticket that comes while a heartbeat is being sent may not be in it.
func TestTicketDuringAHeartbeatHasOneOfItsOwn(t *testing.T) {
	at := beats(t, 100*time.Millisecond, 0, func(b *heartbeater) {
		b.within(200 * time.Millisecond)
		time.Sleep(250 * time.Millisecond)
		b.within(150 * time.Millisecond)
	})
	if want := []time.Duration{200 * time.Millisecond, 400 * time.Millisecond}; !slices.Equal(at, want) {
		t.Errorf("heartbeats at %v, want %v", at, want)
	}
}
