package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// ends ends subscriptions one after the other, each in a goroutine of its own, and
// returns their errors. Each has asked the hub when the next one begins; next is the
// number of its question.
func ends(t *testing.T, h *handHub, subs []driver.Registration, asked func(next uint64)) <-chan error {
	t.Helper()
	done := make(chan error, len(subs))
	for _, s := range subs {
		go func() { done <- s.End(t.Context()) }()
		asked(<-h.syncs)
	}
	return done
}

// The hub learns of each subscription that comes and goes: it shares the messages of a
// group by their number, and reports the losses before (S4, S11). Nothing is left of a
// registration without subscriptions (L18).
func TestTheHubLearnsOfEachSubscription(t *testing.T) {
	n, h := handServed(t, Config{})
	for _, group := range []string{"", "g"} {
		subs, number := subscribed(t, n, h, group, &sink{}, &sink{})
		done := ends(t, h, subs, func(next uint64) { h.synced(t, next) })
		for range subs {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		var got []string
		for range 3 {
			got = append(got, <-h.changes)
		}
		first := fmt.Sprintf("%d has 2", number)
		if want := []string{first, fmt.Sprintf("%d has 1", number), fmt.Sprint(number, " leaves")}; !slices.Equal(got, want) {
			t.Errorf("group %q: the hub learns %q, want %q", group, got, want)
		}
	}
	b := n.Bus()
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, m := len(b.registrations), len(b.byNumber); n+m > 0 {
		t.Errorf("%d and %d registrations are left", n, m)
	}
}

// A subscription whose End does not wait for the hub gets nothing more either (S8).
func TestTheEndOfItsContextEndsTheDeliveries(t *testing.T) {
	for _, group := range []string{"", "g"} {
		n, h := handServed(t, Config{})
		subs, number := subscribed(t, n, h, group, &sink{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := subs[0].End(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		_, members := n.Bus().find(number)
		if n := len(n.Bus().tables[driver.Event].Find("x").subscriptions); n+len(members) > 0 {
			t.Errorf("group %q: messages still go to %d and %d subscriptions", group, n, len(members))
		}
		if group != "" { // of a group, the hub gives it to another process
			f := protocol.Begin(0).Bool(false).Uint(1).Uint(number)
			d := protocol.NewDecoder(protocol.AddMessage(f, &driver.Message{Kind: driver.Event, Subject: "x"}).Body())
			s, err := n.session()
			if err != nil {
				t.Fatal(err)
			}
			n.Bus().deliver(s.line, driver.Event, nil, &d)
			if got := []string{<-h.changes, <-h.changes}; got[1] != "returned true" {
				t.Errorf("the hub learns %q", got)
			}
		}
		h.synced(t, <-h.syncs)
	}
}

// Events that a process has given back because its last subscription leaves may find
// nobody else. The hub reports that after the leave, and one subscription is told (S4).
func TestEventsThatAreGivenBackInVainAreCountedOnce(t *testing.T) {
	n, h := handServed(t, Config{})
	var sinks [2]lossSink
	subs, number := subscribed(t, n, h, "g", &sinks[0], &sinks[1])
	subs[0].(*subscription).in.returned.Store(true)
	var questions []uint64
	done := ends(t, h, subs, func(next uint64) { questions = append(questions, next) })
	for _, q := range questions {
		h.synced(t, q)
	}
	questions = []uint64{<-h.syncs, <-h.syncs} // whether it has decided about the events
	h.say(t, protocol.Begin(protocol.TypeGap).Uint(number).Uint(3))
	for _, q := range questions {
		h.synced(t, q)
	}
	for range subs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if first, second := sinks[0].lost.Load(), sinks[1].lost.Load(); first+second != 3 {
		t.Errorf("%d and %d events are told to be lost, want 3", first, second)
	}
}

// A question that cannot be sent is answered at once, and not kept: nothing else would
// answer it.
func TestQuestionOnALineThatHasEndedIsAnswered(t *testing.T) {
	here, there := net.Pipe()
	must(t, there.Close())
	line := protocol.NewLine(here)
	line.Close()
	var s syncs
	answered := make(chan error, 1)
	s.begin(line, func(err error) { answered <- err })
	for name, answer := range map[string]func() error{
		"begin": func() error {
			select {
			case err := <-answered:
				return err
			default:
				return nil
			}
		},
		"wait": func() error { return s.wait(t.Context(), line) },
	} {
		if err := answer(); !errors.Is(err, driver.ErrDisconnected) || len(s.waiting) != 0 {
			t.Errorf("%s: %v, %d questions are kept", name, err, len(s.waiting))
		}
	}
}
