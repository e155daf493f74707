//go:build linux || darwin

package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// outcome is a front that keeps the error of the last request.
type outcome struct {
	deaf
	err error
}

func (o *outcome) Fail(_ uint64, err error) { o.err = err }

// A hub of a newer build may have a reason that this process does not know. It does
// not show that nobody has handled the request.
func TestARequestThatFailsForAnUnknownReasonMayHaveBeenHandled(t *testing.T) {
	for why, want := range map[byte]error{
		protocol.FailNoResponder: driver.ErrNoResponders, protocol.FailGone: driver.ErrDisconnected,
		protocol.FailFull: driver.ErrOverloaded, 200: driver.ErrDisconnected,
	} {
		var o outcome
		b := &Bus{front: &o}
		d := protocol.NewDecoder(protocol.Begin(protocol.TypeFailed).Uint(1).Byte(why).Body())
		b.failed(&d)
		if !errors.Is(o.err, want) {
			t.Errorf("reason %d: %v, want %v", why, o.err, want)
		}
	}
}

// responder is a subscription to requests that takes them or not.
type responder struct {
	sink
	takes bool
	taken []driver.Message
}

func (r *responder) Deliver(m driver.Message) bool {
	if r.takes {
		r.taken = append(r.taken, m)
	}
	return r.takes
}

// The hub learns at once that nobody takes a request here, gets the part of a group
// back, and knows the last answer (S11, S12).
func TestARequestEndsWithTheLastSubscriptionThatTakesIt(t *testing.T) {
	for _, c := range []struct {
		plain, group []bool // whether the subscriptions take the request
		want         []string
	}{
		{[]bool{false}, nil, []string{"no member"}},
		{[]bool{true}, nil, []string{"answered true"}},
		{[]bool{true, true}, nil, []string{"answered false", "answered true"}},
		{[]bool{true, false}, nil, []string{"answered true"}},
		{[]bool{false, false}, nil, []string{"no member"}},
		{nil, []bool{false}, []string{"returned true"}},
		{nil, []bool{false, true}, []string{"answered true"}},
		{nil, []bool{true, false, false}, []string{"answered true"}},
		{[]bool{true}, []bool{true}, []string{"answered false", "answered true"}},
		{[]bool{true}, []bool{false}, []string{"returned false", "answered true"}},
		{[]bool{false}, []bool{true}, []string{"answered true"}},
		{[]bool{false}, []bool{false}, []string{"returned false", "no member"}},
	} {
		t.Run(fmt.Sprint(c.plain, c.group), func(t *testing.T) {
			n, h := handServed(t, Config{})
			s, err := n.session()
			if err != nil {
				t.Fatal(err)
			}
			b, line := n.Bus(), s.line
			var all []*responder
			subscribe := func(group string, takes []bool) (number uint64) {
				for _, takes := range takes {
					r := &responder{takes: takes}
					x, _, err := b.enter(driver.Subscription{Kind: driver.Request, Pattern: "x", Group: group, Sink: r})
					if err != nil {
						t.Fatal(err)
					}
					all, number = append(all, r), x.in.number
				}
				return number
			}
			subscribe("", c.plain)
			groups := []uint64{}
			if number := subscribe("g", c.group); number > 0 {
				groups = append(groups, number)
			}
			m := protocol.AddMessage(protocol.Begin(0), &driver.Message{Kind: driver.Request, Subject: "x"}).Body()
			for range 10 { // members of a group are drawn
				f := protocol.Begin(0).Bool(len(c.plain) > 0).Uint(uint64(len(groups)))
				for _, number := range groups {
					f.Uint(number)
				}
				d := protocol.NewDecoder(f.Rest(m).Body())
				b.deliver(line, driver.Request, &received{RequestID: protocol.RequestID{Client: 1, Number: 7}, line: line}, &d)
				for _, r := range all {
					for _, m := range r.taken {
						if err := b.Answer(t.Context(), m, driver.Message{Kind: driver.Answer, Subject: "x"}); err != nil {
							t.Fatal(err)
						}
					}
					r.taken = nil
				}
				for _, want := range c.want {
					for got := ""; got != want; { // apart from the subscriptions
						if got = <-h.changes; got != want && !strings.Contains(got, " has ") {
							t.Fatalf("the hub learns %q, want %q of %q", got, want, c.want)
						}
					}
				}
			}
		})
	}
}
