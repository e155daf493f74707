package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var overflowCases = []testCase{
	{rule: "S10", claim: "drops are counted exactly, reported, and marked at their position", run: exactDrops},
	{rule: "S10", claim: "a buffer is also bounded in bytes, and so is its memory", run: boundedBytes},
	{rule: "S10", claim: "a buffer is bounded in bytes also under OrderBy", run: boundedBytesInLanes},
	{rule: "S10", claim: "DropOldest keeps the newest", run: dropsOldest},
	{rule: "S10", claim: "Terminate ends the subscription", run: terminates},
	{rule: "S10", claim: "drops are reported at once, and then at most once a second", run: dropsAreRateLimited},
	{rule: "S10", claim: "an observer that blocks, publishes or panics delays nothing", run: rudeObserver},
	{rule: "S10", claim: "a request that finds the responder's buffer full is refused at once", run: overloadedResponder},
	{rule: "S10", claim: "a stuck subscription delays neither the publisher nor other subscriptions", run: stuckSubscription},
	{rule: "S10", claim: "subscriptions whose buffers overflow in a cycle continue", run: circle},
}

// stuck is a subscription whose handler waits for its gate.
type stuck struct {
	*inbox
	*gate
	running *gate
}

// stick subscribes to pattern, and returns once the handler has one message of
// from's, published to subject.
func (e *env) stick(from, to *process, pattern, subject string, opts ...bus.SubOption) *stuck {
	s := &stuck{inbox: &inbox{e: e}, gate: e.gate(), running: e.gate()}
	s.Sub = to.subscribe(pattern, func(ctx context.Context, m *bus.Msg) error {
		s.running.open()
		s.pass(ctx)
		return s.handle(ctx, m)
	}, opts...)
	from.publish(subject, "first")
	e.Await(s.running.c, "the handler has its first message")
	return s
}

// arrives waits until n messages have come to the subscription.
func (e *env) arrives(s *bus.Sub, n int) {
	e.Soon(fmt.Sprintf("%d messages come to %s", n, s.Name()), func() bool { return s.Stats().Received >= uint64(n) })
}

func publishMany(p *process, subject string, from, to int) {
	for i := from; i <= to; i++ {
		p.publish(subject, strconv.Itoa(i))
	}
}

func numbers(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// missed returns the Missed of each message.
func (in *inbox) missed() (missed []int) {
	for _, m := range in.all() {
		missed = append(missed, m.Missed)
	}
	return missed
}

func exactDrops(e *env) {
	a, b := e.pair()
	const buffer, dropped = 10, 1000
	s := e.stick(a, b, "x.*", "x.y", bus.Buffer(buffer, 1<<20), bus.Name("slow"))
	healthy := b.listen("x.*")
	publishMany(a, "x.y", 1, buffer+dropped)
	healthy.waits(buffer + dropped)
	e.arrives(s.Sub, 1+buffer+dropped)
	e.Want(s.Stats().Dropped == dropped && s.Stats().Pending == buffer, "the stats are %+v", s.Stats())
	s.open()
	s.waits(1 + buffer)
	publishMany(a, "x.y", 2000, 2001)
	a.flush()
	e.drain(s.inbox, healthy)
	s.has(append(append([]string{"first"}, numbers(1, buffer)...), "2000", "2001")...)
	want := make([]int, 1+buffer+2)
	want[1+buffer] = dropped
	e.Want(slices.Equal(s.missed(), want), "the messages have Missed %v, want %v", s.missed(), want)
	e.Want(healthy.len() == buffer+dropped+2 && healthy.Stats().Dropped == 0, "the other one got %d messages", healthy.len())
	var reported uint64
	e.Soon("all drops are reported", func() bool {
		reported = 0
		for _, d := range eventsOf[bus.Dropped](b) {
			e.Want(d.Name == "slow" && d.Pattern == "x.*" && d.Site != "" && d.Subject == "x.y", "reported %+v", d)
			reported += d.Count
		}
		return reported >= dropped
	})
	e.Want(reported == dropped, "reported %d drops, want %d", reported, dropped)
}

func boundedBytes(e *env) {
	a, b := e.pair()
	const size, room = 64 << 10, 16
	s := e.stick(a, b, "x", "x", bus.Buffer(1000, room*size))
	data := bytes.Repeat([]byte("x"), size)
	before := heap()
	const n = 200
	for range n {
		e.Must(a.Publish(e.Ctx, "x", data), "publish")
	}
	e.arrives(s.Sub, 1+n)
	st := s.Stats()
	e.Want(st.Pending == room && st.PendingBytes == room*size && st.Dropped == n-room, "the stats are %+v", st)
	// Memory for their arrival does not count for the buffer.
	e.Soon("no more memory is held than the buffer may have", func() bool { return heap() < before+3*room*size })
	s.open()
	s.waits(1 + room)
	a.publish("x", "next")
	s.waits(1 + room + 1)
	e.Want(s.missed()[1+room] == n-room, "the next message has Missed %d, want %d", s.missed()[1+room], n-room)
	huge := e.stick(a, b, "y", "y", bus.Buffer(1000, 10))
	a.publish("y", strings.Repeat("x", 1000))
	e.arrives(huge.Sub, 2)
	huge.open()
	huge.waits(2) // a single message always fits
}

// boundedBytesInLanes has an idle handler sort what waits for one key.
func boundedBytesInLanes(e *env) {
	a, b := e.pair()
	const size, room, n = 1 << 10, 5, 20
	s := e.stick(a, b, "x", "x", bus.Buffer(1000, room*size), bus.Concurrency(2), bus.OrderBy(func(*bus.Msg) string { return "same" }))
	for i := range n {
		a.publish("x", strings.Repeat("x", size))
		e.arrives(s.Sub, 2+i)
	}
	st := s.Stats()
	e.Want(st.Pending == room && st.PendingBytes == room*size && st.Dropped == n-room, "the stats are %+v", st)
	s.open()
	s.waits(1 + room)
	e.Soon("nothing waits", func() bool { return s.Stats().Pending == 0 && s.Stats().PendingBytes == 0 })
	a.publish("x", "next")
	s.waits(1 + room + 1)
	e.Want(s.missed()[1+room] == n-room, "the next message has Missed %d, want %d", s.missed()[1+room], n-room)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func dropsOldest(e *env) {
	a, b := e.pair()
	s := e.stick(a, b, "x", "x", bus.Buffer(5, 1<<20), bus.OnFull(bus.DropOldest))
	publishMany(a, "x", 1, 50)
	e.arrives(s.Sub, 51)
	s.open()
	e.drain(s.inbox)
	s.has(append([]string{"first"}, numbers(46, 50)...)...)
	e.Want(slices.Equal(s.missed(), []int{0, 45, 0, 0, 0, 0}) && s.Stats().Dropped == 45, "the messages have Missed %v, and %d were dropped", s.missed(), s.Stats().Dropped)
}

func terminates(e *env) {
	a, b := e.pair()
	s := e.stick(a, b, "x", "x", bus.Buffer(5, 1<<20), bus.OnFull(bus.Terminate), bus.Name("ledger"))
	healthy := b.listen("x")
	publishMany(a, "x", 1, 50)
	healthy.waits(50)
	e.Soon("it has ended", func() bool { return s.Err() != nil })
	e.Is(s.Err(), bus.ErrTerminated, "why it ended")
	s.open()
	e.Await(s.Done(), "Done is closed")
	s.has("first")
	e.Soon("it is reported", func() bool { return len(eventsOf[bus.Ended](b)) == 1 })
	reported := eventsOf[bus.Ended](b)[0]
	e.Want(reported.Name == "ledger", "reported %+v", reported)
	e.Is(reported.Err, bus.ErrTerminated, "the reports")
}

func dropsAreRateLimited(e *env) {
	a, b := e.pair()
	s := e.stick(a, b, "x", "x", bus.Buffer(1, 1<<20))
	before := time.Now()
	n := 0
	for ; time.Since(before) < 300*time.Millisecond; n++ {
		a.publish("x", "")
		if n%10 == 0 {
			e.Sleep(10 * time.Millisecond)
		}
	}
	a.flush()
	e.arrives(s.Sub, 1+n)
	e.Soon("the first one is reported", func() bool { return len(eventsOf[bus.Dropped](b)) > 0 })
	s.Stop()
	var sum uint64
	e.Soon("the other drops are reported at the end", func() bool {
		sum = 0
		for _, d := range eventsOf[bus.Dropped](b) {
			sum += d.Count
		}
		return sum == s.Stats().Dropped
	})
	reported, most := len(eventsOf[bus.Dropped](b)), 3+int(time.Since(before)/time.Second)
	e.Want(reported <= most && sum > uint64(most), "%d drops were reported in %d events, want at most %d", sum, reported, most)
	s.open()
}

// observer is a function as an observer.
type observer func(bus.Event)

func (o observer) Observe(e bus.Event) { o(e) }

func rudeObserver(e *env) {
	hold := e.gate()
	for name, observe := range map[string]func(p *process){
		"blocks":    func(*process) { <-hold.c },
		"publishes": func(p *process) { _ = p.Publish(e.Ctx, "told", nil) },
		"panics":    func(*process) { panic("observer") },
	} {
		var p *process
		ready := e.gate()
		p = e.process(func(c *bus.Config) {
			c.Observer = observer(func(bus.Event) { <-ready.c; observe(p) })
		})
		ready.open()
		p.subscribe("x", func(context.Context, *bus.Msg) error { return fmt.Errorf("no") })
		s := e.stick(p, p, "x", "x", bus.Buffer(1, 1))
		healthy := p.listen("x")
		publishMany(p, "x", 1, 100)
		e.Want(healthy.comes(100), "with an observer that %s %d of 100 messages arrived", name, healthy.len())
		s.open()
	}
	hold.open()
}

func overloadedResponder(e *env) {
	a, b := e.pair()
	g, running := e.gate(), e.gate()
	s := b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		running.open()
		g.pass(ctx)
		return nil, nil
	}, bus.Concurrency(1), bus.Buffer(1, 1<<20))
	first := e.Async(func() { a.request("x", "") })
	e.Await(running.c, "the first is being answered")
	second := e.Async(func() { a.request("x", "") })
	e.arrives(s, 2)
	before := time.Now()
	_, err := a.Request(e.Ctx, "x", nil)
	e.hasCode(err, "bus.overloaded")
	e.took(before, 0, 20, "the refusal")
	g.open()
	e.Await(first, "the first is answered")
	e.Await(second, "the second is answered")
}

// stuckSubscription publishes at full speed: that one subscription is stuck
// must not be seen by the publisher or the others.
// stuckSubscription publishes at full speed, without and with a subscription
// that hangs.
func stuckSubscription(e *env) {
	a, b := e.pair()
	const buffer, memory = 100, 8 << 20
	n := max(suite.Scaled(5000), buffer)
	healthy := b.tally("x")
	free := healthy.volleys(a, n)
	s := e.stick(a, b, "x", "x", bus.Buffer(buffer, 1<<20))
	healthy.want++ // its first
	before := heap()
	held := healthy.volleys(a, n)
	e.Want(held.least <= 5*free.most+e.Unit, "publishing took %v while one was stuck, %v before", held.least, free.most)
	e.Want(held.leastOf99 <= 10*free.mostOf99+e.Unit/100, "99 of 100 took up to %v while one was stuck, %v before", held.leastOf99, free.mostOf99)
	e.arrives(s.Sub, 1+3*n)
	e.Soon("no more memory is held than the buffer may have", func() bool { return heap() < before+memory })
	lost := 3*n - buffer
	e.Want(s.Stats().Dropped == uint64(lost) && healthy.Stats().Dropped == 0, "dropped %d of %d, and %d of the other's", s.Stats().Dropped, 3*n, healthy.Stats().Dropped)
	s.open()
	s.waits(1 + buffer)
	healthy.want++
	a.publish("x", "next")
	s.waits(1 + buffer + 1)
	e.Want(s.missed()[1+buffer] == lost, "the next message has Missed %d, want %d", s.missed()[1+buffer], lost)
}

// tally is a subscription that counts.
type tally struct {
	*bus.Sub
	e    *env
	want int
}

func (p *process) tally(pattern string) *tally {
	sub := p.subscribe(pattern, func(context.Context, *bus.Msg) error { return nil })
	return &tally{Sub: sub, e: p.e}
}

// pace contains the times of several volleys of publishes: the shortest and the
// longest, in all and for 99 of 100 publishes.
type pace struct{ least, most, leastOf99, mostOf99 time.Duration }

func (t *tally) volleys(from *process, n int) (p pace) {
	for i := range 3 {
		total, of99 := t.volley(from, n)
		if i == 0 {
			p = pace{total, total, of99, of99}
		}
		p = pace{min(p.least, total), max(p.most, total), min(p.leastOf99, of99), max(p.mostOf99, of99)}
	}
	return p
}

// volley publishes n messages at full speed, in portions that the buffer has
// room for.
func (t *tally) volley(from *process, n int) (total, of99 time.Duration) {
	const portion, size = 5000, 256
	took, data := make([]time.Duration, n), make([]byte, size)
	for i := range took {
		start := time.Now()
		t.e.Must(from.Publish(t.e.Ctx, "x", data), "publish")
		took[i] = time.Since(start)
		total += took[i]
		if t.want++; (i+1)%portion == 0 || i == n-1 {
			t.e.Soon("the other one has everything", func() bool { return t.Stats().Handled == uint64(t.want) })
		}
	}
	slices.Sort(took)
	return total, took[n*99/100]
}

func circle(e *env) {
	a, b := e.pair()
	hop := func(p *process, to string) bus.Handler {
		return func(ctx context.Context, m *bus.Msg) error {
			if len(m.Data) >= 20 {
				return nil
			}
			for range 2 {
				if err := p.Publish(ctx, to, append(slices.Clip(m.Data), '.')); err != nil && !errors.Is(err, bus.ErrClosed) {
					e.Report("publish: %w", err)
				}
			}
			return nil
		}
	}
	ping := a.subscribe("ping", hop(a, "pong"), bus.Buffer(2, 1<<10))
	pong := b.subscribe("pong", hop(b, "ping"), bus.Buffer(2, 1<<10))
	b.publish("ping", "")
	e.Soon("it has come to its end", func() bool {
		in, out := ping.Stats(), pong.Stats()
		return in.Handled > 0 && in.Pending+in.Running+out.Pending+out.Running == 0 && out.Received >= 2
	})
	e.works(a, b)
}
