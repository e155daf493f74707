package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus"
)

var gapCases = []testCase{
	{rule: "S10", claim: "Missed marks the position of the loss", run: missedAtItsPlace},
	{rule: "S10", claim: "adjacent losses are one mark, which takes no room in the buffer", run: marksMerge},
	{rule: "S10", claim: "OnGap is a barrier at the position of the loss", run: gapIsABarrier},
	{rule: "S10", claim: "OnGap does not wait for a next message", run: gapWithoutAMessage},
	{rule: "S10", claim: "the pauses after calls of OnGap that fail grow from a second to a minute, and begin anew", fake: true, run: repairPauses},
	{rule: "S10", claim: "a failed OnGap is called again, with the losses in between", run: gapThatFails},
}

// ways are the ways in which a subscription takes its messages one at a time.
var ways = map[string][]bus.SubOption{
	"one at a time": nil,
	"in a group":    {bus.Group("g")},
	"by key":        {bus.Concurrency(4), bus.OrderBy(func(*bus.Msg) string { return "" })},
	"with OnGap":    {bus.OnGap(func(context.Context, int) error { return nil })},
	"by key, with OnGap": {
		bus.Concurrency(4), bus.OrderBy(func(*bus.Msg) string { return "" }), bus.OnGap(func(context.Context, int) error { return nil }),
	},
}

func missedAtItsPlace(e *env) {
	a, b := e.pair()
	for name, opts := range ways {
		e.newestMissed(a, b, name, opts)
		e.oldestMissed(a, b, name, opts)
		e.expiredMissed(a, b, name, opts)
	}
}

// newestMissed drops 15 of 20 messages behind the first, and 1 behind 21.
func (e *env) newestMissed(a, b *process, name string, opts []bus.SubOption) {
	s := e.stick(a, b, "x", "x", append(slices.Clip(opts), bus.Buffer(5, 1<<20))...)
	publishMany(a, "x", 1, 20)
	e.arrives(s.Sub, 21)
	s.open()
	s.waits(6)
	a.publish("x", "21")
	s.waits(7)
	e.drain(s.inbox)
	s.has("first", "1", "2", "3", "4", "5", "21")
	e.Want(slices.Equal(s.missed(), []int{0, 0, 0, 0, 0, 0, 15}), "%s: the messages have Missed %v, want 15 at the last", name, s.missed())
}

func (e *env) oldestMissed(a, b *process, name string, opts []bus.SubOption) {
	s := e.stick(a, b, "x", "x", append(slices.Clip(opts), bus.Buffer(5, 1<<20), bus.OnFull(bus.DropOldest))...)
	publishMany(a, "x", 1, 20)
	e.arrives(s.Sub, 21)
	s.open()
	e.drain(s.inbox)
	if inOrder(name) {
		e.marked(s.inbox, name, 20)
		return
	}
	s.has("first", "16", "17", "18", "19", "20")
	e.Want(slices.Equal(s.missed(), []int{0, 15, 0, 0, 0, 0}), "%s, dropping the oldest: the messages have Missed %v, want 15 at the second", name, s.missed())
}

// expiredMissed has the message expire that follows the loss: the next one has
// it.
func (e *env) expiredMissed(a, b *process, name string, opts []bus.SubOption) {
	s := e.stick(a, b, "x", "x", append(slices.Clip(opts), bus.Buffer(5, 1<<20), bus.OnFull(bus.DropOldest))...)
	publishMany(a, "x", 1, 2)
	a.publish("x", "3", bus.Expires(e.Units(1)))
	publishMany(a, "x", 4, 7)
	e.arrives(s.Sub, 8)
	e.Pass(2)
	s.open()
	e.drain(s.inbox)
	if inOrder(name) {
		e.marked(s.inbox, name, 7, 3)
		return
	}
	s.has("first", "4", "5", "6", "7")
	e.Want(slices.Equal(s.missed(), []int{0, 2, 0, 0, 0}), "%s, one expired: the messages have Missed %v, want 2 at the second", name, s.missed())
}

// inOrder reports whether the subscription orders by key. While a key is being
// computed its message is not in the buffer, so a newer one is dropped instead.
func inOrder(name string) bool { return strings.HasPrefix(name, "by key") }

// marked checks that the numbered messages behind "first" are in order up to
// last, that some are missing, and that each has the number of missing ones
// before it. A message that expires may have been dropped before.
func (e *env) marked(in *inbox, name string, last int, expires ...int) {
	before, lost := 0, 0
	for i, data := range in.data()[1:] {
		number, err := strconv.Atoi(data)
		e.Must(err, "%s: message %q", name, data)
		most := number - before - 1
		least := most
		for _, n := range expires {
			if before < n && n < number {
				least--
			}
		}
		got := in.missed()[i+1]
		e.Want(number > before && least <= got && got <= most, "%s: the messages %q have Missed %v, want %d to %d before %d", name, in.data(), in.missed(), least, most, number)
		before, lost = number, lost+got
	}
	e.Want(before == last && lost > 0, "%s: the messages %q have Missed %v, want losses before, and %d at the end", name, in.data(), in.missed(), last)
}

// gaps collects the calls of OnGap.
type gaps struct {
	mu    sync.Mutex // guards calls
	calls []int
}

func (g *gaps) onGap(_ context.Context, missed int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, missed)
	return nil
}

func (g *gaps) all() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// turnstiles let the handler of a subscription go on message by message.
type turnstiles struct {
	*inbox
	turn chan struct{}
}

// stepped is a subscription whose handler has the first message and waits for
// its turn with each.
func (e *env) stepped(a, b *process, opts ...bus.SubOption) *turnstiles {
	s := &turnstiles{inbox: &inbox{e: e}, turn: make(chan struct{}, 1000)}
	s.Sub = b.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		select {
		case <-s.turn:
		case <-ctx.Done():
		}
		return s.handle(ctx, m)
	}, opts...)
	a.publish("x", "first")
	e.Soon("the handler has its first message", func() bool { return s.Stats().Running == 1 && s.Stats().Pending == 0 })
	return s
}

// step lets n messages be handled.
func (s *turnstiles) step(n int) {
	had := s.len()
	for range n {
		s.turn <- struct{}{}
	}
	s.waits(had + n)
}

// marksMerge loses 3 messages, keeps one, and loses 4 in two parts.
func marksMerge(e *env) {
	a, b := e.pair()
	for _, policy := range []bus.Policy{bus.DropNewest, bus.DropOldest} {
		g := &gaps{}
		s := e.stepped(a, b, bus.Buffer(2, 1<<20), bus.OnFull(policy), bus.OnGap(g.onGap))
		publishMany(a, "x", 1, 5)
		e.arrives(s.Sub, 6)
		e.Want(s.Stats().Pending == 2, "%d messages wait", s.Stats().Pending)
		s.step(1) // first
		e.Soon("the next one runs", func() bool { return s.Stats().Pending == 1 })
		publishMany(a, "x", 6, 8)
		e.arrives(s.Sub, 9)
		publishMany(a, "x", 9, 10)
		e.arrives(s.Sub, 11)
		s.step(3)
		a.publish("x", "11")
		s.step(1)
		e.drain(s.inbox)
		want, missed := []string{"first", "1", "2", "6", "11"}, []int{0, 0, 0, 3, 4}
		if policy == bus.DropOldest {
			want, missed = []string{"first", "4", "9", "10", "11"}, []int{0, 3, 4, 0, 0}
		}
		s.has(want...)
		e.Want(slices.Equal(s.missed(), missed), "the messages have Missed %v, want %v", s.missed(), missed)
		e.Want(slices.Equal(g.all(), []int{3, 4}), "policy %d: OnGap was called with %v, want 3 and 4", policy, g.all())
	}
}

// gapIsABarrier has handlers run, loses messages behind them, and watches who
// starts before and during OnGap.
func gapIsABarrier(e *env) {
	a, b := e.pair()
	byKey := bus.OrderBy(func(m *bus.Msg) string { return string(m.Data[len(m.Data)-1:]) })
	e.barrier(a, b, "one at a time", 1)
	e.barrier(a, b, "many", 4)
	e.barrier(a, b, "by key", 4, byKey)
	e.barrier(a, b, "the oldest", 4, bus.OnFull(bus.DropOldest))
	e.barrier(a, b, "the oldest by key", 4, byKey, bus.OnFull(bus.DropOldest))
}

// barrier is the subscription of gapIsABarrier, with its observations.
type barrier struct {
	*bus.Sub
	gaps
	e             *env
	name          string
	turn          chan struct{} // lets handlers return
	hold, called  *gate         // of OnGap
	running       atomic.Int64
	started, done atomic.Int64 // calls of OnGap
	handled       atomic.Int64
}

func (s *barrier) handle(ctx context.Context, m *bus.Msg) error {
	s.running.Add(1)
	defer s.running.Add(-1)
	if s.started.Load() != s.done.Load() {
		s.e.Report("%s: the handler of %s starts while OnGap runs", s.name, m.Data)
	}
	if string(m.Data) == "behind" && s.done.Load() == 0 {
		s.e.Report("%s: the handler of a message behind the loss starts before OnGap", s.name)
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
	}
	s.handled.Add(1)
	return nil
}

func (s *barrier) onGap(ctx context.Context, missed int) error {
	s.started.Add(1)
	defer s.done.Add(1)
	s.called.open()
	if n := s.running.Load(); n != 0 {
		s.e.Report("%s: OnGap starts while %d handlers run", s.name, n)
	}
	s.hold.pass(ctx)
	return s.gaps.onGap(ctx, missed)
}

// barrier runs n handlers before messages are lost.
func (e *env) barrier(a, b *process, name string, n int, opts ...bus.SubOption) {
	s := &barrier{e: e, name: name, turn: make(chan struct{}, 1000), hold: e.gate(), called: e.gate()}
	s.Sub = b.subscribe("x", s.handle, append(opts, bus.Concurrency(n), bus.Buffer(20, 1<<20), bus.OnGap(s.onGap))...)
	publishMany(a, "x", 1, n)
	e.Soon("the handlers run", func() bool { return s.running.Load() == int64(n) })
	publishMany(a, "x", n+1, 60)
	e.arrives(s.Sub, 60)
	dropped := int(s.Stats().Dropped)
	s.turn <- struct{}{}
	e.Soon("one has returned", func() bool { return s.handled.Load() == 1 })
	a.publish("x", "behind")
	e.arrives(s.Sub, 61)
	e.Pass(0.2)
	e.Want(s.started.Load() == 0, "%s: OnGap starts before the earlier handlers have returned", name)
	for range 100 {
		s.turn <- struct{}{}
	}
	e.Await(s.called.c, name+": OnGap is called")
	before := s.handled.Load()
	publishMany(a, "x", 61, 65)
	e.arrives(s.Sub, 66)
	e.Pass(0.2)
	e.Want(s.handled.Load() == before, "%s: %d messages were handled while OnGap ran", name, s.handled.Load()-before)
	s.hold.open()
	ctx, cancel := e.Bounded()
	defer cancel()
	e.Must(s.Drain(ctx), "drain")
	calls, sum := s.all(), 0
	for _, n := range calls {
		sum += n
	}
	e.Want(dropped > 0 && calls[0] >= dropped && sum == int(s.Stats().Dropped), "%s: OnGap was called with %v, want %d and %d in all", name, calls, dropped, s.Stats().Dropped)
}

func gapWithoutAMessage(e *env) {
	a, b := e.pair()
	for _, opts := range ways {
		g := &gaps{}
		s := e.stick(a, b, "x", "x", append(slices.Clip(opts), bus.Buffer(1, 1<<20), bus.OnGap(g.onGap))...)
		publishMany(a, "x", 1, 10)
		e.arrives(s.Sub, 11)
		s.open()
		s.wants("first", "1")
		e.Soon("OnGap is called", func() bool { return slices.Equal(g.all(), []int{9}) })
		a.publish("x", "11")
		s.wants("first", "1", "11")
		e.Want(slices.Equal(s.missed(), []int{0, 0, 9}), "the messages have Missed %v", s.missed())
		s.Stop()
	}
	g := &gaps{}
	in := b.listen("x", bus.AfterGap(), bus.OnGap(g.onGap))
	e.Soon("OnGap is called", func() bool { return slices.Equal(g.all(), []int{-1}) })
	plain := b.listen("x", bus.AfterGap())
	publishMany(a, "x", 1, 2)
	for _, in := range []*inbox{in, plain} {
		in.wants("1", "2")
		e.Want(slices.Equal(in.missed(), []int{-1, 0}), "after a gap the messages have Missed %v", in.missed())
	}
	e.Want(slices.Equal(g.all(), []int{-1}), "OnGap was called with %v", g.all())
}

// gapThatFails has OnGap panic, lets messages and another loss pass meanwhile,
// and wants it called again in time. The typed subscription is the same.
func gapThatFails(e *env) {
	a, b := e.pair()
	g := &gaps{}
	var failing atomic.Bool
	failing.Store(true)
	turn := make(chan struct{}, 100)
	var handled atomic.Int64
	s, err := bus.Topic[int]("x").Subscribe(e.Ctx, b.Bus, func(ctx context.Context, _ int) error {
		select {
		case <-turn:
		case <-ctx.Done():
		}
		handled.Add(1)
		return nil
	}, bus.Buffer(1, 1<<20), bus.Name("failing"), bus.OnGap(func(ctx context.Context, missed int) error {
		if failing.Swap(false) {
			panic(fmt.Sprint("missed ", missed))
		}
		return g.onGap(ctx, missed)
	}))
	e.Must(err, "subscribe")
	before := time.Now()
	e.lose(a, s, turn, 3)
	e.Soon("the failure is reported", func() bool { return len(eventsOf[bus.GapFailed](b)) == 1 })
	failed := eventsOf[bus.GapFailed](b)[0]
	_, panicked := errors.AsType[*bus.PanicError](failed.Err)
	e.Want(failed.Name == "failing" && failed.Missed == 3 && panicked && failed.Again >= time.Second && failed.Again <= 2*time.Second, "reported %+v", failed)
	e.lose(a, s, turn, 4)
	e.Soon("OnGap is called again", func() bool { return len(g.all()) > 0 })
	e.Want(slices.Equal(g.all(), []int{7}), "OnGap was called again with %v, want 7", g.all())
	e.Want(time.Since(before) >= failed.Again, "it was called again after %v, want %v", time.Since(before), failed.Again)
}

// lose makes s lose n messages. It publishes n+2 of them to x: the handler has the
// first, which waits for turn, and the buffer has room for one.
func (e *env) lose(a *process, s *bus.Sub, turn chan<- struct{}, n int) {
	had := int(s.Stats().Received)
	a.publish("x", "0")
	e.Soon("it runs", func() bool { return s.Stats().Running == 1 && s.Stats().Pending == 0 })
	publishMany(a, "x", 1, n+1)
	e.arrives(s, had+n+2)
	turn <- struct{}{}
	turn <- struct{}{}
	e.Soon("both are handled", func() bool { return s.Stats().Handled+s.Stats().Dropped == uint64(had+n+2) })
}

// repairPauses has OnGap fail until the pauses grow no longer.
func repairPauses(e *env) {
	a, b := e.pair()
	const failures = 9
	var mu sync.Mutex
	var calls []time.Time
	left := failures
	fail := func(context.Context, int) error {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, time.Now())
		if left--; left >= 0 {
			return errors.New("no")
		}
		return nil
	}
	turn := make(chan struct{}, 2)
	s := b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		select {
		case <-turn:
		case <-ctx.Done():
		}
		return nil
	}, bus.Buffer(1, 1<<20), bus.OnGap(fail))
	reports := func(n int) []bus.GapFailed {
		e.Eventually(10*time.Minute, fmt.Sprintf("%d failures are reported", n), func() bool { return len(eventsOf[bus.GapFailed](b)) >= n })
		return eventsOf[bus.GapFailed](b)
	}
	inPause := func(r bus.GapFailed, least time.Duration) {
		e.Want(r.Missed == 3 && r.Again >= min(least, time.Minute) && r.Again <= min(least*5/4, time.Minute), "after a pause of about %v OnGap failed with %+v", least, r)
	}
	e.lose(a, s, turn, 3)
	all := reports(failures)
	for i, r := range all {
		inPause(r, time.Second<<i)
	}
	e.Eventually(10*time.Minute, "OnGap succeeds", func() bool { mu.Lock(); defer mu.Unlock(); return len(calls) == failures+1 })
	mu.Lock()
	for i, r := range all {
		e.Want(calls[i+1].Sub(calls[i]) == r.Again, "call %d came after %v, want %v", i+1, calls[i+1].Sub(calls[i]), r.Again)
	}
	left = 1
	mu.Unlock()
	e.lose(a, s, turn, 3)
	inPause(reports(failures + 1)[failures], time.Second)
}
