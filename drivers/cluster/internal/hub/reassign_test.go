package hub

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/windows"
)

// newPeer returns a client of h that nobody serves. Each frame that the hub sends to it
// appears in the list, in words.
func newPeer(t *testing.T, h *Hub, number uint64) (*Client, *[]string) {
	t.Helper()
	here, there := net.Pipe()
	c, far, got := newClient(h, here, "peer"), protocol.NewLine(there), new([]string)
	c.number = number
	read := make(chan struct{})
	go func() {
		defer close(read)
		_ = far.Read(func(typ protocol.Type, body []byte) error {
			d := protocol.NewDecoder(body)
			switch typ {
			case protocol.TypeServe, protocol.TypeDeliver:
				what, to := "event", []uint64{}
				if typ == protocol.TypeServe {
					what = fmt.Sprint("request ", protocol.ReadRequestID(&d).Number)
				}
				d.Bool()
				for range d.Count() {
					to = append(to, d.Uint())
				}
				*got = append(*got, fmt.Sprint(what, " for ", to))
			case protocol.TypeReply:
				*got = append(*got, "answer")
			case protocol.TypeCall:
				*got = append(*got, "ping")
			case protocol.TypeFailed:
				d.Uint()
				*got = append(*got, fmt.Sprint("failed ", d.Byte()))
			case protocol.TypeSynced:
				*got = append(*got, "synced")
			case protocol.TypeGap:
				*got = append(*got, fmt.Sprintf("gap of %[2]d for %[1]d", d.Uint(), d.Uint()))
			}
			return nil
		}, func() {})
	}()
	t.Cleanup(func() {
		h.bus.leave(c)
		c.line.Close()
		far.Close()
		<-read
	})
	return c, got
}

// enlist adds registrations of groups to c, numbered from 1 on.
func enlist(c *Client, k driver.Kind, groups ...string) (all []*registration) {
	for i, g := range groups {
		r := &registration{client: c, number: uint64(i + 1), groupKey: groupKey{k, "a", g}}
		r.members.Store(1)
		c.bus.add(r)
		c.hub.bus.tables[k].Add(r.pattern, r.group, r)
		all = append(all, r)
	}
	return all
}

// A request that nobody waits for any more counts against its process for as long as that
// one stands still: one ping shows whether it does. At most 1024 are remembered.
func TestExpiredRequestsCountWhileTheirProcessStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		c, got := newPeer(t, h, 1)
		asker, _ := newPeer(t, h, 2)
		add := func(first, n uint64, until int64) {
			c.bus.mu.Lock()
			defer c.bus.mu.Unlock()
			for i := range n {
				c.addPending(protocol.RequestID{Client: 2, Number: first + i}, &pending{requester: asker, until: until})
			}
		}
		check := func(what string, pending int64, pings ...string) {
			t.Helper()
			time.Sleep(2 * expiryPause)
			synctest.Wait()
			if n := c.bus.unanswered.Load(); n != pending || !slices.Equal(*got, pings) {
				t.Errorf("%s: %d requests count, the process got %v; want %d, %v", what, n, *got, pending, pings)
			}
		}
		add(1, 1, 0) // without a deadline
		add(2, 1, time.Now().Add(expiryPause/2).UnixNano())
		check("it stands still", 2, "ping")
		check("it still does", 2, "ping")
		c.frames.Add(1)
		check("it has answered", 1, "ping")
		add(3, 1, time.Now().UnixNano()-1)
		check("it stands still again", 2, "ping", "ping")
		add(4, 2*maxExpired, time.Now().UnixNano()-1)
		check("with too many", maxExpired, "ping", "ping")
	})
}

// Requests expire also when the process has had none for a while.
func TestRequestsExpireAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		c, got := newPeer(t, h, 1)
		asker, _ := newPeer(t, h, 2)
		for round := range 2 {
			c.bus.mu.Lock()
			c.addPending(protocol.RequestID{Client: 2, Number: uint64(round)}, &pending{requester: asker, until: time.Now().UnixNano() - 1})
			c.bus.mu.Unlock()
			time.Sleep(2 * expiryPause)
			synctest.Wait()
			c.frames.Add(1)             // the answer to the ping
			time.Sleep(4 * expiryPause) // the pause
			if n := c.bus.unanswered.Load(); n != 0 || len(*got) != round+1 {
				t.Errorf("round %d: %d requests count, the process got %v", round, n, *got)
			}
		}
	})
}

// A responder leaves between the choice and the delivery of a request. Other processes
// get what it has not received, and the request fails once, with the reason, when nobody
// is left who may answer (S11, S12).
func TestRequestForSubscriptionsThatHaveJustLeftGoesToOthers(t *testing.T) {
	const noResponder, full = "failed 0", "failed 2"
	for _, c := range []struct {
		name            string
		groups, others  []string // of the chosen process, and of another one
		change          func(chosen *Client, of []*registration, other *Client)
		chosen, another []string // what the processes receive
		before, after   []string // what the asker receives before and after the answers
	}{
		{
			name: "one of two groups has left", groups: []string{"g", "h"}, others: []string{"g"},
			change: func(_ *Client, of []*registration, _ *Client) { of[0].ended.Store(true) },
			chosen: []string{"request 7 for [2]"}, another: []string{"request 7 for [1]"},
			after: []string{"answer", "answer"},
		},
		{
			name: "its only group has left", groups: []string{"g"}, others: []string{"g"},
			change:  func(_ *Client, of []*registration, _ *Client) { of[0].ended.Store(true) },
			another: []string{"request 7 for [1]"},
			after:   []string{"answer"},
		},
		{
			name: "nobody else is in the group that has left", groups: []string{"g", "h"},
			change: func(_ *Client, of []*registration, _ *Client) { of[0].ended.Store(true) },
			chosen: []string{"request 7 for [2]"},
			after:  []string{"answer"},
		},
		{
			name: "the process has ended, and the other one has its second group", groups: []string{"g", "h"}, others: []string{"h"},
			change:  func(chosen *Client, _ []*registration, _ *Client) { chosen.bus.close() },
			another: []string{"request 7 for [1]"},
			after:   []string{"answer"},
		},
		{
			name: "the line has ended", groups: []string{"g"}, others: []string{"g"},
			change:  func(chosen *Client, _ []*registration, _ *Client) { chosen.line.Close() },
			another: []string{"request 7 for [1]"},
			after:   []string{"answer"},
		},
		{
			name: "the lines of all have ended", groups: []string{"g"}, others: []string{"g"},
			change: func(chosen *Client, _ []*registration, other *Client) {
				chosen.line.Close()
				other.line.Close()
			},
			before: []string{noResponder},
		},
		{
			name: "the process has ended, and was the last one", groups: []string{"g", "h"},
			change: func(chosen *Client, _ []*registration, _ *Client) { chosen.bus.close() },
			before: []string{noResponder},
		},
		{
			name: "the other one takes no messages", groups: []string{"g"}, others: []string{"g"},
			change: func(chosen *Client, _ []*registration, other *Client) {
				chosen.bus.close()
				other.bus.full.Store(true)
			},
			before: []string{full},
		},
		{
			name: "the other one has a group of two, and takes no messages", groups: []string{"g", "h"}, others: []string{"g"},
			change: func(chosen *Client, _ []*registration, other *Client) {
				chosen.bus.close()
				other.bus.full.Store(true)
			},
			before: []string{full},
		},
		{
			name: "no process takes messages, and a group has left", groups: []string{"g", "h"},
			change: func(chosen *Client, of []*registration, _ *Client) {
				of[0].ended.Store(true)
				chosen.bus.full.Store(true)
			},
			before: []string{full},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := New(Config{})
				defer func() { _ = h.Close(context.Background()) }()
				asker, askerGot := newPeer(t, h, 1)
				chosen, chosenGot := newPeer(t, h, 2)
				other, otherGot := newPeer(t, h, 3)
				of := enlist(chosen, driver.Request, c.groups...)
				enlist(other, driver.Request, c.others...)
				want := func(when string, of *[]string, want []string) {
					t.Helper()
					for _, c := range []*Client{asker, chosen, other} {
						c.batch.flush()
					}
					synctest.Wait()
					if !slices.Equal(*of, want) {
						t.Errorf("%s: %q, want %q", when, *of, want)
					}
				}
				h.bus.remember(asker)
				tail := protocol.AddMessage(protocol.Begin(0), &driver.Message{Subject: "a", Deadline: time.Now().Add(time.Hour)}).Body()
				id := protocol.RequestID{Client: 1, Number: 7}
				owed := &pending{requester: asker, until: protocol.DeadlineOf(tail)}
				if len(c.groups) > 1 {
					owed.shared = &sharedRequest{left: 1}
				}
				c.change(chosen, of, other)
				h.bus.deliverRequest(asker, &addressed{delivery{groups: slices.Clone(of)}, chosen}, id, owed, tail)
				want("the chosen process", chosenGot, c.chosen)
				want("the other process", otherGot, c.another)
				want("the asker", askerGot, c.before)
				for who, got := range map[*Client][]string{chosen: c.chosen, other: c.another} {
					if n := len(who.bus.pending); n != len(got) {
						t.Errorf("%d requests are pending, want %d", n, len(got))
					}
					for range got {
						f := protocol.Begin(protocol.TypeAnswer).Uint(1).Uint(7).Bool(true).Rest(tail)
						d := protocol.NewDecoder(f.Body())
						if err := h.bus.answer(who, &d); err != nil {
							t.Error(err)
						}
					}
				}
				want("the asker after the answers", askerGot, append(c.before, c.after...))
				for _, who := range []*Client{chosen, other} {
					if n := len(who.bus.pending); n > 0 {
						t.Errorf("%d requests are left", n)
					}
				}
			})
		})
	}
}

// A request of two groups is in two processes. It fails once, after the last of them, with
// ErrDisconnected if one of them has ended, and not at all if one has answered in full and
// the other has nobody who answers (S12).
func TestRequestEndsWithTheLastProcessThatHasIt(t *testing.T) {
	const noResponder, gone, more, done, none, back, leave, join = "failed 0", "failed 1", "more", "done", "none", "back", "leave", "join"
	type step struct {
		of   int // the process
		what string
	}
	for _, c := range []struct {
		groups []string // of the processes
		steps  []step
		want   []string // what the asker receives
	}{
		{nil, nil, []string{noResponder}},
		{[]string{"g"}, []step{{0, done}}, []string{"answer"}},
		{[]string{"g"}, []step{{0, done}, {0, leave}}, []string{"answer"}},
		{[]string{"g"}, []step{{0, more}, {0, leave}}, []string{"answer", gone}},
		{[]string{"g"}, []step{{0, more}, {0, none}}, []string{"answer"}},
		{[]string{"g"}, []step{{0, none}, {0, leave}}, []string{noResponder}},
		{[]string{"g"}, []step{{0, back}}, []string{noResponder}},
		{[]string{"g", "h"}, []step{{0, none}, {1, none}}, []string{noResponder}},
		{[]string{"g", "h"}, []step{{0, none}, {1, back}}, []string{noResponder}},
		{[]string{"g", "h"}, []step{{0, none}, {1, done}}, []string{"answer"}},
		{[]string{"g", "h"}, []step{{0, done}, {1, none}}, []string{"answer"}},
		{[]string{"g", "h"}, []step{{0, more}, {1, none}}, []string{"answer"}},
		{[]string{"g", "h"}, []step{{0, done}, {1, done}}, []string{"answer", "answer"}},
		{[]string{"g", "h"}, []step{{0, leave}, {1, none}}, []string{gone}},
		{[]string{"g", "h"}, []step{{0, none}, {1, leave}}, []string{gone}},
		{[]string{"g", "h"}, []step{{0, leave}, {1, done}}, []string{"answer", gone}},
		{[]string{"g", "h"}, []step{{0, leave}}, nil},
		{[]string{"g", "h"}, []step{{1, join}, {0, back}, {1, done}}, []string{"answer"}}, // it has the request twice
		{[]string{"g", "h"}, []step{{1, join}, {0, back}, {1, done}, {1, done}}, []string{"answer", "answer"}},
		{[]string{"g", "h"}, []step{{1, join}, {0, back}, {1, leave}}, []string{gone}},
		{[]string{"g", "h"}, []step{{1, join}, {0, back}, {1, done}, {1, leave}}, []string{"answer", gone}},
		{[]string{"g", "h"}, []step{{1, join}, {0, more}, {0, back}, {1, none}, {1, none}}, []string{"answer"}},
	} {
		t.Run(fmt.Sprint(c.groups, c.steps), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := New(Config{})
				defer func() { _ = h.Close(context.Background()) }()
				asker, got := newPeer(t, h, 1)
				all := make([]*Client, len(c.groups))
				for i, g := range c.groups {
					all[i], _ = newPeer(t, h, uint64(2+i))
					enlist(all[i], driver.Request, g)
				}
				m := protocol.AddMessage(protocol.Begin(0), &driver.Message{Subject: "a"}).Body()
				d := protocol.NewDecoder(protocol.Begin(0).Uint(7).Rest(m).Body())
				if err := h.bus.request(asker, &d); err != nil {
					t.Fatal(err)
				}
				id := func() *protocol.Frame { return protocol.Begin(0).Uint(1).Uint(7) }
				for _, s := range c.steps {
					who := all[s.of]
					var f *protocol.Frame
					typ := protocol.TypeAnswer
					switch s.what {
					case leave:
						h.bus.leave(who)
						who.batch.flush()
						continue
					case join: // the group of the first process
						enlist(who, driver.Request, c.groups[0])
						continue
					case none:
						typ, f = protocol.TypeNoMember, id()
					case back:
						typ, f = protocol.TypeReturn, id().Bool(true).Byte(byte(driver.Request)).String("a").String(c.groups[s.of]).Rest(m)
					default:
						f = id().Bool(s.what == done).Rest(m)
					}
					d := protocol.NewDecoder(f.Body())
					if err := h.bus.handle(who, typ, &d); err != nil {
						t.Fatal(err)
					}
					who.batch.flush()
				}
				asker.batch.flush()
				synctest.Wait()
				if !slices.Equal(*got, c.want) {
					t.Errorf("the asker has %q, want %q", *got, c.want)
				}
			})
		})
	}
}

// A process whose line has ended is not known to have left. The events for its group go to
// another process (S4).
func TestEventForAProcessWhoseLineHasEndedGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		defer func() { _ = h.Close(context.Background()) }()
		sender, _ := newPeer(t, h, 1)
		other, got := newPeer(t, h, 2)
		enlist(other, driver.Event, "g")
		const events = 64
		for i := range events {
			for number := range uint64(2) { // one of these is chosen first and the other one second, nearly certainly once
				ended, _ := newPeer(t, h, 3+2*uint64(i)+number)
				enlist(ended, driver.Event, "g")
				ended.line.Close()
			}
			d := protocol.NewDecoder(protocol.AddMessage(protocol.Begin(0), &driver.Message{Subject: "a"}).Body())
			if err := h.bus.event(sender, &d); err != nil {
				t.Fatal(err)
			}
			sender.batch.flush()
			synctest.Wait()
		}
		if len(*got) != events {
			t.Errorf("%d of %d events have arrived", len(*got), events)
		}
	})
}

// A subscription that comes or goes while its process takes no messages learns first how
// many were not sent before: its own part of them is at its place (S4, S10).
func TestLossesAreReportedBeforeAChangeOfTheirSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		defer func() { _ = h.Close(context.Background()) }()
		sender, _ := newPeer(t, h, 1)
		slow, got := newPeer(t, h, 2)
		enlist(slow, driver.Event, "g")
		slow.bus.full.Store(true)
		handle := func(c *Client, typ protocol.Type, f *protocol.Frame) {
			t.Helper()
			d := protocol.NewDecoder(f.Body())
			if err := h.bus.handle(c, typ, &d); err != nil {
				t.Fatal(err)
			}
		}
		for i, change := range []func(){
			func() { handle(slow, protocol.TypeMembers, protocol.Begin(0).Uint(1).Uint(2)) },
			func() { handle(slow, protocol.TypeLeave, protocol.Begin(0).Uint(1)) },
		} {
			for range 3 + i {
				handle(sender, protocol.TypeEvent, protocol.AddMessage(protocol.Begin(0), &driver.Message{Subject: "a"}))
			}
			change()
			handle(slow, protocol.TypeSync, protocol.Begin(0).Uint(1)) // by which the process knows that all has come
		}
		slow.reportLosses() // of nothing more
		slow.line.Flush()
		synctest.Wait()
		if want := []string{"gap of 3 for 1", "synced", "gap of 4 for 1", "synced"}; !slices.Equal(*got, want) {
			t.Errorf("the process has %q, want %q", *got, want)
		}
	})
}

// A process that has a request for two groups, and gives back the part of one, keeps the other.
// The part has the deadline of the request.
func TestAPartOfARequestIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		defer func() { _ = h.Close(context.Background()) }()
		asker, answers := newPeer(t, h, 1)
		first, _ := newPeer(t, h, 2)
		second, got := newPeer(t, h, 3)
		enlist(first, driver.Request, "g", "h")
		m := protocol.AddMessage(protocol.Begin(0), &driver.Message{Subject: "a", Deadline: time.Now().Add(time.Hour)}).Body()
		handle := func(c *Client, typ protocol.Type, f *protocol.Frame) {
			t.Helper()
			d := protocol.NewDecoder(f.Body())
			if err := h.bus.handle(c, typ, &d); err != nil {
				t.Fatal(err)
			}
			c.batch.flush()
		}
		id := func() *protocol.Frame { return protocol.Begin(0).Uint(1).Uint(7) }
		handle(asker, protocol.TypeRequest, protocol.Begin(0).Uint(7).Rest(m))
		enlist(second, driver.Request, "g")
		handle(first, protocol.TypeReturn, id().Bool(false).Byte(byte(driver.Request)).String("a").String("g").Rest(m))
		synctest.Wait()
		if want := []string{"request 7 for [1]"}; !slices.Equal(*got, want) {
			t.Errorf("the other process has %q, want %q", *got, want)
		}
		for d, x := range second.bus.pending {
			if left := time.Until(time.Unix(0, x.until)); left <= 0 || left > time.Hour {
				t.Errorf("the request %d counts for %v", d.Number, left)
			}
		}
		handle(second, protocol.TypeNoMember, id())
		synctest.Wait()
		if len(*answers) > 0 {
			t.Errorf("the asker has %q before the first process has answered", *answers)
		}
		handle(first, protocol.TypeNoMember, id())
		synctest.Wait()
		if want := []string{fmt.Sprint("failed ", protocol.FailNoResponder)}; !slices.Equal(*answers, want) {
			t.Errorf("the asker has %q, want %q", *answers, want)
		}
	})
}

// A request that has failed because its sender takes no messages fails once.
func TestARequestWithoutRoomForItsAnswerFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		defer func() { _ = h.Close(context.Background()) }()
		slow, got := newPeer(t, h, 1)
		slow.bus.full.Store(true)
		var b batch
		b.reply(slow, 7, protocol.Begin(protocol.TypeReply).Uint(7))
		for range 2 {
			slow.reportLosses()
		}
		slow.line.Flush()
		synctest.Wait()
		if want := []string{fmt.Sprint("failed ", protocol.FailFull)}; !slices.Equal(*got, want) {
			t.Errorf("the process has %q, want %q", *got, want)
		}
	})
}

// A message that was routed to a subscription that has just left is no loss of it.
func TestASubscriptionThatHasLeftLosesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		defer func() { _ = h.Close(context.Background()) }()
		slow, got := newPeer(t, h, 1)
		plain := enlist(slow, driver.Event, "", "")
		plain[0].ended.Store(true)
		slow.bus.full.Store(true)
		var b batch
		if o, _ := b.deliver(slow, &delivery{plain: plain}); o != dropped {
			t.Errorf("the outcome is %d", o)
		}
		slow.reportLosses()
		slow.line.Flush()
		synctest.Wait()
		if want := []string{"gap of 1 for 2"}; !slices.Equal(*got, want) {
			t.Errorf("the process has %q, want %q", *got, want)
		}
	})
}

// A frame that breaks the format ends its connection, and changes nothing for others.
func TestMalformedFramesAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	join := func(number uint64, kind byte, pattern, group string) *protocol.Frame {
		return protocol.Begin(protocol.TypeJoin).Uint(number).Byte(kind).Uint(1).String(pattern).String(group)
	}
	event := func(subject string) *protocol.Frame {
		return protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &driver.Message{Subject: subject})
	}
	limit, err := protocol.AddJSON(protocol.Begin(protocol.LimitRecord), windows.Record{Key: "k", Logs: []windows.LogRecord{{N: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	c, _ := newPeer(t, h, 1)
	enlist(c, driver.Event, "g")
	for name, frame := range map[string]struct {
		typ protocol.Type
		f   *protocol.Frame
	}{
		"a number twice":       {protocol.TypeJoin, join(1, 0, "b", "g")},
		"an unknown kind":      {protocol.TypeJoin, join(2, 2, "b", "g")},
		"a long pattern":       {protocol.TypeJoin, join(2, 0, long, "g")},
		"a long group":         {protocol.TypeJoin, join(2, 0, "b", long)},
		"a part of a join":     {protocol.TypeJoin, protocol.Begin(protocol.TypeJoin).Uint(2)},
		"no subject":           {protocol.TypeEvent, event("")},
		"a long subject":       {protocol.TypeEvent, event(long)},
		"a return of no kind":  {protocol.TypeReturn, protocol.Begin(protocol.TypeReturn).Uint(0).Uint(1).Bool(true).Byte(2).String("a").String("g").Rest(event("a").Body())},
		"a part of an answer":  {protocol.TypeAnswer, protocol.Begin(protocol.TypeAnswer).Uint(1)},
		"a limit per nothing":  {protocol.LimitRecord, limit},
		"a leave of no number": {protocol.TypeLeave, protocol.Begin(protocol.TypeLeave)},
	} {
		c.admitted = true
		if err := c.handle(frame.typ, frame.f.Body()); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if n := len(c.bus.registrations); n != 1 {
		t.Errorf("the process has %d registrations, want its own", n)
	}
}

// The hub knows the senders of requests until they end.
func TestTheSenderOfARequestIsForgottenWithItsConnection(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	c, _ := newPeer(t, h, 1)
	d := protocol.NewDecoder(protocol.Begin(0).Uint(7).Rest(protocol.AddMessage(protocol.Begin(0), &driver.Message{Subject: "a"}).Body()).Body())
	if err := h.bus.request(c, &d); err != nil || h.bus.requester(1) != c {
		t.Fatal(err)
	}
	if h.bus.leave(c); h.bus.requester(1) != nil {
		t.Error("the hub keeps the sender")
	}
}
