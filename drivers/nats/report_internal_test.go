package nats

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// told is a sink that counts its gaps.
type told struct {
	one
	gaps int
	hear func()
}

func (s *told) Gap(int) {
	s.gaps++
	if s.hear != nil {
		s.hear()
	}
}

// joined returns a new subscription of the bus, whose Subscribe has not returned.
func joined(t *testing.T, b *Bus, s driver.Sink) *member {
	t.Helper()
	m, err := b.join(driver.Subscription{Pattern: "a", Sink: s})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A message may come before the confirmation of its subscription. If the connection ends
// in between, the next message has a gap before it (S10).
func TestAGapBehindAMessageBeforeTheConfirmationIsReported(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	var s told
	in := joined(t, b, &s).topic
	for attempt, comes := range []bool{false, true, false, true} {
		l, void := b.newLink(), false
		receive := in.handler(l, &void)
		b.beginAttempt([]*topic{in})
		before := s.gaps
		if comes {
			receive(&nats.Msg{Subject: "ev.a"})
		}
		b.suspend(l)
		b.gap(b.standing())
		b.gap(b.standing())
		if reported := s.gaps - before; (reported == 1) != comes || reported > 1 {
			t.Errorf("attempt %d: %d gaps are reported", attempt, reported)
		}
	}
	if s.taken != 2 {
		t.Errorf("%d messages were taken, want 2", s.taken)
	}
}

// A subscription that begins when its connection has ended gets nothing from it: the gap of
// this end is not reported to it (S10).
func TestAConnectionThatHasEndedDeliversNothingToLaterSubscriptions(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	var first, later told
	in := joined(t, b, &first).topic
	l, void := b.newLink(), false
	receive := in.handler(l, &void)
	b.beginAttempt([]*topic{in})
	b.mu.Lock()
	b.activate(in, nil)
	b.mu.Unlock()
	receive(&nats.Msg{Subject: "ev.a"})
	b.suspend(l)
	joined(t, b, &later)
	receive(&nats.Msg{Subject: "ev.a"})
	b.gap(b.standing())
	if first.taken != 1 || first.gaps != 1 {
		t.Errorf("the first one took %d messages and has %d gaps", first.taken, first.gaps)
	}
	if later.taken != 0 || later.gaps != 0 {
		t.Errorf("the later one took %d messages and has %d gaps", later.taken, later.gaps)
	}
}

// A subscription that ends while the gap of an outage is being reported has it before its
// end returns (S4).
func TestAnEndWaitsForTheReportOfAGap(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	reporting, reported := make(chan struct{}), make(chan struct{})
	s := told{hear: func() { close(reporting); <-reported }}
	m := joined(t, b, &s)
	m.live = true
	go b.gap(b.standing())
	<-reporting
	ended := make(chan error, 1)
	go func() { ended <- m.End(t.Context()) }()
	select {
	case err := <-ended:
		t.Errorf("the end returns %v before the report", err)
		ended <- err
	case <-time.After(50 * time.Millisecond): // enough for an end that does not wait
	}
	close(reported)
	if err := <-ended; err != nil {
		t.Errorf("got %v for a gap that is reported", err)
	}
}
