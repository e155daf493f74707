package bustest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var copyCases = []testCase{
	{rule: "S10", claim: "a copy that OnGap fetches is correct when idle, with every policy", run: copies},
	{rule: "S10", claim: "after an outage OnGap begins when the subscription is active again", needs: []fault{"Down", "Up"}, run: gapAfterOutage},
	{rule: "S10", claim: "a copy that OnGap fetches is correct after an outage", needs: []fault{"Down", "Up"}, run: copyAfterOutages},
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
func (r *record) set(p *process) {
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
	opts = append(slices.Clip(opts), bus.OnGap(c.fetch), bus.AfterGap())
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
		over = append(over, c.keep(ctx, b, append(slices.Clip(opts), bus.Buffer(5, 1<<20))...))
	}
	e.Soon("all have subscribed", func() bool { return len(b.Stats().Subs) == len(all) })
	for range max(suite.Scaled(10), 3) {
		for range 50 {
			r.set(a)
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
		r.set(a)
		e.Soon("the copy is right", c.isRight)
		for range 10 {
			r.set(a)
		}
		e.down()
		e.isDisconnected(a, b)
		for range 10 {
			r.set(a)
		}
		e.up()
		e.isConnected(a, b)
		e.Soon("the copy is right after the outage", c.isRight)
	}
	stop()
	e.Await(over, "the copy ends")
}
