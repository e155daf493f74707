package cluster

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// gapSink counts the gaps that it gets, and calls meanwhile during each of them.
type gapSink struct {
	sink
	gaps      int
	meanwhile func()
}

func (s *gapSink) Gap(int) { s.gaps++; s.meanwhile() }

// Either the driver or End reports the gap of an outage (S4), also if End is called
// while the driver reports the gap to the subscriptions.
func TestAnOutageIsReportedOnceToASubscriptionThatEnds(t *testing.T) {
	n, h := handServed(t, Config{})
	var subs [2]driver.Registration
	var sinks [2]gapSink
	var ends [2]chan error
	var asked []uint64 // the questions of both Ends to the hub
	for i := range subs {
		ends[i] = make(chan error, 1)
		other := 1 - i
		sinks[i].meanwhile = func() {
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				ends[other] <- subs[other].End(t.Context())
			}()
			select {
			case <-returned:
			case number := <-h.syncs:
				asked = append(asked, number)
			}
		}
		subscribed := make(chan error, 1)
		go func() {
			var err error
			subs[i], err = n.Bus().Subscribe(t.Context(), driver.Subscription{Kind: driver.Event, Pattern: "x", Sink: &sinks[i]})
			subscribed <- err
		}()
		h.synced(t, <-h.syncs)
		if err := <-subscribed; err != nil {
			t.Fatal(err)
		}
	}
	s, err := n.session()
	if err != nil {
		t.Fatal(err)
	}
	n.Bus().disconnected(errors.New("connection reset by the test"))
	n.Bus().connected(s)
	for _, number := range asked { // the reader handles these answers after it has reported the gaps
		h.synced(t, number)
	}
	for i := range subs {
		err := <-ends[i]
		if reported := errors.Is(err, driver.ErrDisconnected); (sinks[i].gaps == 1) == reported {
			t.Errorf("subscription %d: %d gaps from the driver, and End returned %v", i, sinks[i].gaps, err)
		}
	}
}

// lossSink adds up the losses that it gets.
type lossSink struct {
	sink
	lost atomic.Int64
}

func (s *lossSink) Gap(n int) { s.lost.Add(int64(n)) }

// A subscription that ends gets the gap on its way to it, whether or not another one
// shares its pattern (S4).
func TestAGapOnItsWayReachesASubscriptionThatEnds(t *testing.T) {
	n, h := handServed(t, Config{})
	var sinks [2]lossSink
	var subs [2]driver.Registration
	done := make(chan error, 1)
	for i := range subs {
		go func() {
			var err error
			subs[i], err = n.Bus().Subscribe(t.Context(), driver.Subscription{Kind: driver.Event, Pattern: "x", Sink: &sinks[i]})
			done <- err
		}()
		h.synced(t, <-h.syncs)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	number := <-h.joins
	for _, s := range subs {
		go func() { done <- s.End(t.Context()) }()
		end := <-h.syncs
		h.say(t, protocol.Begin(protocol.TypeGap).Uint(number).Uint(5))
		h.synced(t, end)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if first, second := sinks[0].lost.Load(), sinks[1].lost.Load(); first != 5 || second != 10 {
		t.Errorf("%d and %d messages are told to be lost, want 5 and 10", first, second)
	}
}
