package bustest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/megaframework/mega/bus"
)

var dropCases = []testCase{
	{rule: "S4", claim: "messages that were dropped after the last one that is handled are counted and reported, however the subscription ends", run: dropsBeforeTheEnd},
	{rule: "S4", claim: "messages that the backend drops for a process that takes none are counted at a subscription that is drained", needs: []fault{"Deafen", "Registrations"}, run: dropsOnTheWay},
	{rule: "S4", claim: "messages that a cut loses on the way to a subscription that two calls drain are one gap", needs: []fault{"Deafen", "Registrations", "Cut"}, run: cutDuringDrains},
	{rule: "S4", claim: "events on their way to a group whose members all stop are counted at one of them", needs: []fault{"Deafen", "Registrations"}, run: groupStopsOnTheWay},
}

// groupStopsOnTheWay stops all members of a group while the backend has events for
// them on the way.
func groupStopsOnTheWay(e *env) {
	a, b := e.pair()
	const n = 50
	for _, size := range []int{1, 2} {
		var members []*inbox
		for range size {
			members = append(members, b.listen(fmt.Sprintf("x.%d", size), bus.Group("g")))
		}
		before := e.registrations()
		hear, err := e.h.Faults.Deafen(b.driver)
		e.Must(err, "deafen")
		e.AtEnd(func() { _ = hear() })
		publishMany(a, members[0].Pattern(), 1, n)
		a.flush()
		var over []<-chan struct{}
		for _, in := range members {
			over = append(over, e.Async(in.Stop))
		}
		e.Soon("the backend knows of the end", func() bool { return e.registrations() < before })
		e.Must(hear(), "hear again")
		var counted uint64
		for i, in := range members {
			e.Await(over[i], "Stop returns")
			e.Await(in.Done(), "it is over")
			st := in.Stats()
			counted += st.Handled + st.Discarded + st.Missed
		}
		e.Want(counted == n, "of %d events %d are counted at %d members", n, counted, size)
		total := b.Stats().Total // of both rounds
		e.Want(total.Handled+total.Discarded+total.Missed == uint64(size*n), "the totals are %+v", total)
	}
	e.works(a, b)
}

// cutDuringDrains breaks the connection of a process that two calls drain, while
// messages are on their way to it.
func cutDuringDrains(e *env) {
	a, b := e.pair()
	const n = 20
	for i := range 10 {
		in := b.listen(fmt.Sprintf("x.%d", i))
		before := e.registrations()
		hear, err := e.h.Faults.Deafen(b.driver)
		e.Must(err, "deafen")
		e.AtEnd(func() { _ = hear() })
		publishMany(a, in.Pattern(), 1, n)
		a.flush()
		over := []<-chan struct{}{e.Async(func() { e.drain(in) }), e.Async(func() { e.drain(in) })}
		e.Soon("the backend knows of the end", func() bool { return e.registrations() < before })
		e.Must(e.h.Faults.Cut(b.driver), "cut")
		e.Must(hear(), "hear again")
		for _, o := range over {
			e.Await(o, "the drain ends")
		}
		st := in.Stats()
		e.Want(st.Gaps == 1 || st.Gaps == 0 && st.Handled+st.Missed == n, "of %d messages %d were handled and %d missed, and %d gaps are counted", n, st.Handled, st.Missed, st.Gaps)
		e.isConnected(b)
	}
}

// dropsBeforeTheEnd ends a subscription whose buffer is full, so that no message
// follows the ones that were dropped.
func dropsBeforeTheEnd(e *env) {
	const published, buffer = 50, 5
	for _, c := range []struct {
		end     string
		call    func(p *process, s *bus.Sub, leave context.CancelFunc) error
		handles bool // the queued messages
	}{
		{"Stop", func(_ *process, s *bus.Sub, _ context.CancelFunc) error { s.Stop(); return nil }, false},
		{"the end of its context", func(_ *process, _ *bus.Sub, leave context.CancelFunc) error { leave(); return nil }, false},
		{"Drain", func(_ *process, s *bus.Sub, _ context.CancelFunc) error { return s.Drain(e.Ctx) }, true},
		{"Drain of the bus", func(p *process, _ *bus.Sub, _ context.CancelFunc) error { return p.Drain(e.Ctx) }, true},
		{"Close of the bus", func(p *process, _ *bus.Sub, _ context.CancelFunc) error { return p.Close() }, false},
	} {
		for policy, onFull := range map[string]bus.SubOption{"the newest": bus.OnFull(bus.DropNewest), "the oldest": bus.OnFull(bus.DropOldest)} {
			a, b := e.pair()
			g, running := e.gate(), e.gate()
			var missed atomic.Int64
			gap := func(_ context.Context, lost int) error { missed.Add(int64(lost)); return nil }
			ctx, leave := context.WithCancel(e.Ctx)
			s, err := b.Subscribe(ctx, "x", func(ctx context.Context, _ *bus.Msg) error {
				running.open()
				g.pass(ctx)
				return nil
			}, bus.Buffer(buffer, 1<<20), onFull, bus.OnGap(gap))
			e.Must(err, "subscribe")
			a.publish("x", "first")
			e.Await(running.c, "the handler has its first message")
			publishMany(a, "x", 1, published)
			a.flush()
			e.arrives(s, 1+published)
			over := e.Async(func() { e.Must(c.call(b, s, leave), "%s", c.end) })
			g.open()
			e.Await(over, c.end+" returns")
			e.Await(s.Done(), "the subscription is over")
			leave()
			st, total := s.Stats(), b.Stats().Total
			e.Want(st.Received == 1+published && st.Handled+st.Dropped+st.Discarded == 1+published && total.Dropped == st.Dropped && total.Received == st.Received,
				"%s, dropping %s: %d messages were published, and it came to %+v, in total %+v", c.end, policy, 1+published, st, total)
			e.Soon(c.end+": the drops are reported", func() bool { return dropsReported(b) == st.Dropped })
			if c.handles {
				e.Want(st.Dropped == published-buffer && st.Discarded == 0, "%s, dropping %s: it came to %+v", c.end, policy, st)
				e.Want(missed.Load() == int64(st.Dropped), "%s, dropping %s: OnGap had %d of %d drops", c.end, policy, missed.Load(), st.Dropped)
			}
		}
	}
}

// dropsReported returns the sum of the drops in the events of the observer.
func dropsReported(p *process) (sum uint64) {
	for _, d := range eventsOf[bus.Dropped](p) {
		sum += d.Count
	}
	return sum
}

// dropsOnTheWay publishes more than the backend keeps for a process, and drains the
// process's subscriptions meanwhile.
func dropsOnTheWay(e *env) {
	a, b := e.pair()
	const n = 500
	// The patterns differ, because a backend may count them.
	all, member := b.listen("x"), b.listen("*", bus.Group("g"))
	healthy := a.listen(">")
	before := e.registrations()
	hear, err := e.h.Faults.Deafen(b.driver)
	e.Must(err, "deafen")
	e.AtEnd(func() { _ = hear() })
	data := strings.Repeat("x", 8<<10)
	for range n {
		a.publish("x", data)
	}
	a.flush()
	healthy.waits(n)
	over := []<-chan struct{}{e.Async(func() { e.drain(all) }), e.Async(func() { e.drain(member) })}
	// A driver may ask for one confirmation at a time.
	e.Soon("the backend knows of the end of one of them", func() bool { return e.registrations() < before })
	e.Must(hear(), "hear again")
	for i, in := range []*inbox{all, member} {
		e.Await(over[i], "the drain ends")
		st := in.Stats()
		// A gap of an unknown size is what a driver reports whose backend did not answer.
		e.Want(st.Gaps > 0 || st.Handled+st.Dropped+st.Missed == n, "of %d messages for %q %d were handled, %d dropped and %d missed", n, st.Group, st.Handled, st.Dropped, st.Missed)
		e.Want(st.Handled == uint64(in.len()) && !slices.ContainsFunc(in.all(), func(m *bus.Msg) bool { return len(m.Data) != len(data) }), "%d messages were handled, and %d arrived", st.Handled, in.len())
	}
}
