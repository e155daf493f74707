package bustest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var gapCases = []testCase{
	{rule: "S10", claim: "Missed marks the position of the loss", run: missedAtItsPlace},
	{rule: "S10", claim: "adjacent losses are one mark, which takes no room in the buffer", run: marksMerge},
	{rule: "S10", claim: "OnGap is a barrier at the position of the loss", run: gapIsABarrier},
	{rule: "S10", claim: "OnGap does not wait for a next message", run: gapWithoutAMessage},
	{rule: "S10", claim: "a failed OnGap is called again, with the losses in between", run: gapThatFails},
	{rule: "S10", claim: "a copy that OnGap fetches is correct when idle, with every policy", run: copies},
	{rule: "S10", claim: "after an outage OnGap begins when the subscription is active again", needs: []fault{"Down", "Up"}, run: gapAfterOutage},
	{rule: "S10", claim: "a copy that OnGap fetches is correct after an outage", needs: []fault{"Down", "Up"}, run: copyAfterOutages},
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
	s := e.stick(a, b, "x", "x", append(opts[:len(opts):len(opts)], bus.Buffer(5, 1<<20))...)
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
	s := e.stick(a, b, "x", "x", append(opts[:len(opts):len(opts)], bus.Buffer(5, 1<<20), bus.OnFull(bus.DropOldest))...)
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
	s := e.stick(a, b, "x", "x", append(opts[:len(opts):len(opts)], bus.Buffer(5, 1<<20), bus.OnFull(bus.DropOldest))...)
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
		s := e.stick(a, b, "x", "x", append(opts[:len(opts):len(opts)], bus.Buffer(1, 1<<20), bus.OnGap(g.onGap))...)
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
	lose := func(had, n int) { // n of n+1 behind one that runs
		a.publish("x", "0")
		e.Soon("it runs", func() bool { return s.Stats().Running == 1 && s.Stats().Pending == 0 })
		publishMany(a, "x", 1, n+1)
		e.arrives(s, had+n+2)
		turn <- struct{}{}
		turn <- struct{}{}
		e.Soon("both are handled", func() bool { return s.Stats().Handled+s.Stats().Dropped == uint64(had+n+2) })
	}
	before := time.Now()
	lose(0, 3)
	e.Soon("the failure is reported", func() bool { return len(eventsOf[bus.GapFailed](b)) == 1 })
	failed := eventsOf[bus.GapFailed](b)[0]
	_, panicked := errors.AsType[*bus.PanicError](failed.Err)
	e.Want(failed.Name == "failing" && failed.Missed == 3 && panicked && failed.Again >= time.Second && failed.Again <= 2*time.Second, "reported %+v", failed)
	lose(5, 4)
	e.Soon("OnGap is called again", func() bool { return len(g.all()) > 0 })
	e.Want(slices.Equal(g.all(), []int{7}), "OnGap was called again with %v, want 7", g.all())
	e.Want(time.Since(before) >= failed.Again, "it was called again after %v, want %v", time.Since(before), failed.Again)
}

// record is a state of which copies are kept, and the events about it.
type record struct {
	mu   sync.Mutex // guards now
	now  map[string]int
	last int
}

func (r *record) fetch() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.now)
}

// set changes one of a few keys, and publishes its new value. Like the owner of
// any state it does not hold a lock meanwhile.
func (r *record) set(e *env, p *process) {
	r.mu.Lock()
	r.last++
	key, value := strconv.Itoa(r.last%7), r.last
	r.now[key] = value
	r.mu.Unlock()
	p.publish("state."+key, strconv.Itoa(value))
}

// replica is a copy that is kept by "fetch in OnGap, else apply".
type replica struct {
	e    *env
	of   *record
	slow float64 // the time of a handler, in units

	mu  sync.Mutex // guards now
	now map[string]int
}

func (c *replica) apply(_ context.Context, m *bus.Msg) error {
	c.e.Sleep(c.e.Units(c.slow))
	value, err := strconv.Atoi(string(m.Data))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[m.Subject[len("state."):]] = value
	return err
}

func (c *replica) fetch(context.Context, int) error {
	now := c.of.fetch()
	c.e.Sleep(c.e.Units(c.slow)) // by now it may be old
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	return nil
}

func (c *replica) isRight() bool {
	now := c.of.fetch()
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Equal(c.now, now)
}

// keep subscribes, and again when the subscription has ended by its policy.
func (c *replica) keep(ctx context.Context, p *process, opts ...bus.SubOption) <-chan struct{} {
	opts = append(opts[:len(opts):len(opts)], bus.OnGap(c.fetch), bus.AfterGap())
	return c.e.Async(func() {
		for ctx.Err() == nil {
			s, err := p.Subscribe(ctx, "state.*", c.apply, opts...)
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, bus.ErrTerminated):
				continue // its buffer was full before Subscribe returned
			}
			c.e.Must(err, "subscribe")
			<-s.Done()
		}
	})
}

var keeping = map[string][]bus.SubOption{
	"DropNewest":         {},
	"DropOldest":         {bus.OnFull(bus.DropOldest)},
	"Terminate":          {bus.OnFull(bus.Terminate)},
	"DropNewest by key":  {bus.Concurrency(4), bus.OrderBy(subject)},
	"DropOldest by key":  {bus.Concurrency(4), bus.OrderBy(subject), bus.OnFull(bus.DropOldest)},
	"Terminate by key":   {bus.Concurrency(4), bus.OrderBy(subject), bus.OnFull(bus.Terminate)},
	"in a group":         {bus.Group("newest")},
	"DropOldest a group": {bus.Group("oldest"), bus.OnFull(bus.DropOldest)},
}

func subject(m *bus.Msg) string { return m.Subject }

// copies changes a state in bursts that are too much for every copy, and wants
// each to be right at rest.
func copies(e *env) {
	a, b := e.pair()
	r := &record{now: map[string]int{}}
	ctx, stop := context.WithCancel(e.Ctx)
	defer stop()
	all := map[string]*replica{}
	var over []<-chan struct{}
	for name, opts := range keeping {
		c := &replica{e: e, of: r, slow: 0.001, now: map[string]int{}}
		all[name] = c
		over = append(over, c.keep(ctx, b, append(opts[:len(opts):len(opts)], bus.Buffer(5, 1<<20))...))
	}
	e.Soon("all have subscribed", func() bool { return len(b.Stats().Subs) == len(all) })
	for range max(suite.Scaled(10), 3) {
		for range 50 {
			r.set(e, a)
		}
		a.flush()
		for name, c := range all {
			e.Soon(name+": the copy is right", c.isRight)
		}
	}
	e.Want(b.Stats().Total.Dropped > 0, "nothing was dropped")
	stop()
	for _, c := range over {
		e.Await(c, "the copies end")
	}
}

// gapAfterOutage has OnGap publish: messages published from OnGap have to
// arrive, since a fetch in OnGap would not include them.
func gapAfterOutage(e *env) {
	a, b := e.pair()
	g := &gaps{}
	in := &inbox{e: e}
	in.Sub = b.subscribe("x", in.handle, bus.OnGap(func(ctx context.Context, missed int) error {
		if state, _ := b.State(); state != bus.StateConnected {
			e.Report("OnGap begins while the bus is %s", state)
		}
		if err := b.Publish(ctx, "x", []byte("from within")); err != nil {
			e.Report("publish in OnGap: %w", err)
		}
		return g.onGap(ctx, missed)
	}))
	members := []*gaps{{}, {}}
	for _, m := range members {
		b.listen("x", bus.Group("g"), bus.OnGap(m.onGap))
	}
	for i := range 2 {
		e.down()
		e.isDisconnected(a, b)
		e.Pass(0.2)
		e.Want(len(g.all()) == i, "OnGap was called %d times while the backend was away", len(g.all()))
		e.up()
		e.isConnected(a, b)
		e.Soon("OnGap is called", func() bool { return len(g.all()) == i+1 })
		in.waits(i + 1)
		for _, m := range members {
			e.Soon("each member is called", func() bool { return len(m.all()) == i+1 })
		}
	}
	e.drain(in)
	e.Want(slices.Equal(g.all(), []int{-1, -1}), "OnGap was called with %v", g.all())
	in.has("from within", "from within")
	for _, m := range members {
		e.Want(slices.Equal(m.all(), []int{-1, -1}), "OnGap of a member was called with %v", m.all())
	}
}

// copyAfterOutages changes a state while the backend goes and comes.
func copyAfterOutages(e *env) {
	a, b := e.pair()
	r := &record{now: map[string]int{}}
	ctx, stop := context.WithCancel(e.Ctx)
	defer stop()
	c := &replica{e: e, of: r, now: map[string]int{}}
	over := c.keep(ctx, b)
	for range min(outages(), 5) {
		e.Soon("it has subscribed", func() bool { return len(b.Stats().Subs) == 1 })
		r.set(e, a)
		e.Soon("the copy is right", c.isRight)
		for range 10 {
			r.set(e, a)
		}
		e.down()
		e.isDisconnected(a, b)
		for range 10 {
			r.set(e, a)
		}
		e.up()
		e.isConnected(a, b)
		e.Soon("the copy is right after the outage", c.isRight)
	}
	stop()
	e.Await(over, "the copy ends")
}
