package locktest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
)

var randomCases = []testCase{
	{rule: "L1", claim: "random calls of several processes keep exclusion, order and bounds", run: randomCalls},
}

const (
	randomCallers = 9  // three for each process
	randomSteps   = 30 // of each caller
)

// mix is a run of random calls in three processes: a sound one, a rough one,
// which loses replies, and a leaving one, which is closed while others go on.
type mix struct {
	*env
	seed                  uint64
	sound, rough, leaving *process
	closing               atomic.Bool // the leaving process may have been closed
	model                 *model
	failed                chan error // the first failure
}

// randomSeed returns the environment variable MEGA_TEST_SEED, which repeats the
// choices of a run that failed, or a random seed.
func (e *env) randomSeed() uint64 {
	text := os.Getenv("MEGA_TEST_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	e.Must(err, "parse MEGA_TEST_SEED")
	return seed
}

func randomCalls(e *env) {
	m := &mix{env: e, seed: e.randomSeed(), failed: make(chan error, 1)}
	m.model = newModel(m.fail)
	m.sound, m.rough, m.leaving = e.process(), e.process(), e.process()
	var over []<-chan struct{}
	for i := range randomCallers {
		p := []*process{m.sound, m.rough, m.leaving}[i%3]
		c := &caller{mix: m, Rand: rand.New(rand.NewPCG(m.seed, uint64(i))), p: p, name: fmt.Sprint("caller-", i)}
		over = append(over, e.Async(c.run))
	}
	for _, done := range over {
		select {
		case <-done:
		case err := <-m.failed:
			m.Fail("MEGA_TEST_SEED=%d: %w", m.seed, err)
		}
	}
	m.isEmpty()
	select {
	case err := <-m.failed:
		m.Fail("MEGA_TEST_SEED=%d: %w", m.seed, err)
	default:
	}
}

// fail fails the run. Its caller goes on, so that no lease is left for others to
// wait for.
func (m *mix) fail(format string, args ...any) {
	select {
	case m.failed <- fmt.Errorf(format, args...):
	default:
	}
}

// bound is the maximum duration of a step. No call waits for more than a second.
func (m *mix) bound() time.Duration { return m.Units(5) + 4*m.slack() }

// keys returns all keys of the run.
func (m *mix) keys() []string {
	return []string{m.key("a"), m.key("b"), m.key("fifo"), m.key("pool"), m.key("slots"), m.key("left")}
}

// isEmpty fails the case unless all keys are free and no call is left.
func (m *mix) isEmpty() {
	for _, key := range m.keys() {
		var s lock.State
		var err error
		if !m.Comes(m.Patience(), func() bool {
			s, err = m.sound.Inspect(m.Ctx, key)
			return err == nil && len(s.Holders)+len(s.Waiters) == 0
		}) {
			m.fail("%q is left with %+v (%v)", key, s, err)
		}
	}
	for _, p := range []*process{m.sound, m.rough, m.leaving} {
		if s := p.Stats(); s.Active+s.Waiting != 0 {
			m.fail("%d leases are active and %d calls wait at the end", s.Active, s.Waiting)
		}
	}
}

// caller makes random calls in one process.
type caller struct {
	*mix
	*rand.Rand
	p    *process
	name string
	step int
}

// randomCall is a kind of call.
type randomCall struct {
	name string
	call func() error
}

// kinds returns the kinds of calls that the driver supports; frequent ones more
// than once.
func (c *caller) kinds() []randomCall {
	with, lease := randomCall{"With", c.with}, randomCall{"Acquire", c.lease}
	all := []randomCall{with, with, with, lease, lease, lease, {"TryAcquire", c.try}, {"With under its own lease", c.again}, {"With and a panic", c.panics}, {"WithAll", c.several}}
	if line := (randomCall{"FIFO", c.inLine}); c.keeps("L7") {
		all = append(all, line, line, line, line, line)
	}
	if slots := (randomCall{"Slots", c.slots}); c.keeps("L15") {
		all = append(all, slots, slots)
	}
	if slot := (randomCall{"WithSlot", c.slot}); c.keeps("P1") {
		all = append(all, slot, slot)
	}
	return all
}

func (c *caller) run() {
	kinds := c.kinds()
	steps := suite.Scaled(randomSteps)
	if c.name == "caller-0" {
		c.bounded("a lease without a release", c.forget)
	}
	for c.step = range steps {
		if c.p == c.leaving && c.closing.Load() {
			c.p = c.sound
		}
		kind := kinds[c.IntN(len(kinds))]
		c.bounded(kind.name, kind.call)
		if c.name == "caller-0" && c.step == steps/2 {
			c.bounded("Close", c.closeOne)
		}
	}
}

// bounded runs one step, and reports it if it takes too long or returns an error
// that cannot be.
func (c *caller) bounded(what string, step func() error) {
	p := c.p
	defer time.AfterFunc(c.bound(), func() { c.fail("not within %v: %s", c.bound(), what) }).Stop()
	remove := func() {}
	if p == c.rough && c.IntN(3) == 0 {
		ops := []Op{Acquire, Renew, Release}
		remove = p.plan.Add(Step{Op: ops[c.IntN(len(ops))], Executed: c.IntN(2) == 0, Err: errUnreachable, Times: 1})
	}
	err := step()
	remove()
	closed := p == c.leaving && c.closing.Load() && isOneOf(err, lock.ErrClosed, lock.ErrLost, context.Canceled)
	if err != nil && !closed && (p != c.rough || !isUnavailable(err)) {
		c.fail("%s: %w", what, err)
	}
}

// terms returns a context and a Wait, and a function that returns nil for an
// error that follows from them.
func (c *caller) terms() (ctx context.Context, opts []lock.Option, end func(error) error) {
	ctx, cancel := context.WithCancel(c.Ctx)
	var fine []error
	switch soon := time.Duration(c.IntN(10_000)) * time.Microsecond; c.IntN(8) {
	case 0:
		cancel()
		fine = append(fine, context.Canceled)
	case 1:
		stop := cancel
		timer := time.AfterFunc(soon, stop)
		cancel = func() { timer.Stop(); stop() }
		fine = append(fine, context.Canceled)
	case 2:
		ctx, cancel = context.WithTimeout(c.Ctx, soon)
		fine = append(fine, context.DeadlineExceeded)
	case 3:
		opts = append(opts, lock.Wait(soon))
		fine = append(fine, lock.ErrNotAcquired)
	}
	ttl := c.Units(100 + float64(c.IntN(2)))
	return ctx, append(opts, lock.TTL(ttl), lock.Label(c.name)), func(err error) error {
		cancel()
		if isOneOf(err, fine...) {
			return nil
		}
		return err
	}
}

// plain returns a random plain key.
func (c *caller) plain() string { return c.keys()[c.IntN(2)] }

// inside is the work of a holder.
func (c *caller) inside(ctx context.Context) error {
	if l, ok := lock.LeaseFrom(ctx); ok {
		c.model.enter(l)
	}
	c.pause(ctx)
	return nil
}

// pause waits for at most two milliseconds.
func (c *caller) pause(ctx context.Context) {
	timer := time.NewTimer(time.Duration(c.IntN(2000)) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (c *caller) with() error {
	ctx, opts, end := c.terms()
	return end(c.p.With(ctx, c.plain(), c.inside, opts...))
}

// lease extends its lease at times, and releases it twice, at times at once.
func (c *caller) lease() error {
	ctx, opts, end := c.terms()
	if c.IntN(8) == 0 {
		opts = append(opts, lock.NoRenew())
	}
	l, err := c.p.Acquire(ctx, c.plain(), opts...)
	if err != nil {
		return end(err)
	}
	_ = c.inside(l.Context())
	if c.IntN(3) == 0 {
		err = l.Extend(ctx, c.Units(50+float64(c.IntN(100))))
	}
	return end(cmp.Or(err, c.twice(l)))
}

// twice releases the lease twice. The second release returns nil.
func (c *caller) twice(l *lock.Lease) error {
	var other <-chan struct{}
	if c.IntN(4) == 0 {
		other = c.Async(func() { _ = l.Release() })
	}
	err := l.Release()
	if other != nil {
		c.Await(other, "a second release")
	}
	if again := l.Release(); again != nil {
		c.fail("the second release of a lease: %w", again)
	}
	return err
}

func (c *caller) try() error {
	l, err := c.p.TryAcquire(c.Ctx, c.plain(), c.ttl(100))
	if err != nil {
		if isOneOf(err, lock.ErrNotAcquired) {
			return nil
		}
		return err
	}
	_ = c.inside(l.Context())
	return c.twice(l)
}

// again acquires the key of its own lease.
func (c *caller) again() error {
	ctx, opts, end := c.terms()
	key := c.plain()
	return end(c.p.With(ctx, key, func(ctx context.Context) error {
		err := c.p.With(ctx, key, c.inside)
		if ctx.Err() == nil && !isOneOf(err, lock.ErrDeadlock) {
			c.fail("a second acquire on the chain: got %v, want ErrDeadlock", err)
		}
		return c.inside(ctx)
	}, opts...))
}

// panics ends its function with a panic.
func (c *caller) panics() (err error) {
	ctx, opts, end := c.terms()
	defer func() {
		if r := recover(); r != nil && r != any(c.name) {
			panic(r)
		}
		err = end(err)
	}()
	return c.p.With(ctx, c.plain(), func(ctx context.Context) error {
		_ = c.inside(ctx)
		panic(c.name)
	}, opts...)
}

func (c *caller) several() error {
	ctx, opts, end := c.terms()
	return end(c.p.WithAll(ctx, c.keys()[:2], func(ctx context.Context) error {
		for _, l := range lock.LeasesFrom(ctx) {
			c.model.enter(l)
		}
		c.pause(ctx)
		return nil
	}, opts...))
}

// slots uses a pool whose size changes.
func (c *caller) slots() error {
	ctx, opts, end := c.terms()
	return end(c.p.With(ctx, c.key("slots"), c.inside, append(opts, lock.Slots(1+c.IntN(3)))...))
}

// slot uses a pool whose slots are prepared and cleaned.
func (c *caller) slot() error {
	ctx, opts, end := c.terms()
	use := func(_ context.Context, s *lock.Slot) error { c.model.enter(s.Lease); return nil }
	pool := &lock.Pool{Key: c.key("pool"), Size: 2, Init: use, Cleanup: use}
	return end(c.p.WithSlot(ctx, pool, func(ctx context.Context, s *lock.Slot) error { return c.inside(ctx) }, opts...))
}

// inLine waits in a strict order, and gives up at times.
func (c *caller) inLine() error {
	at, call := c.queue()
	if c.IntN(3) == 0 {
		c.pause(c.Ctx)
		c.model.gives(at)
		call.cancel()
	}
	call.wait(c.bound())
	if call.err != nil {
		if at.gone && isOneOf(call.err, context.Canceled) {
			return nil
		}
		return call.err
	}
	c.model.served(at)
	_ = c.inside(call.got.Context())
	return c.twice(call.got)
}

// queue returns a call of Acquire, and its place. It returns when the call is in
// the queue, so that the next place is behind it.
func (c *caller) queue() (*place, *asked) {
	c.model.tail <- struct{}{}
	defer func() { <-c.model.tail }()
	label := fmt.Sprint(c.name, ", step ", c.step)
	p := c.p
	// A lost reply ends a call of the rough process, unknown to the model.
	at := c.model.place(func() bool { return p == c.rough || p == c.leaving && c.closing.Load() })
	call := p.ask(c.key("fifo"), lock.FIFO(), c.ttl(100), lock.Label(label))
	for !call.over() && !c.isInLine(label) {
		c.Sleep(c.Unit / 3000) // less than a holder takes, so that a line forms
	}
	return at, call
}

func (c *caller) isInLine(label string) bool {
	s, err := c.sound.Inspect(c.Ctx, c.key("fifo"))
	c.Must(err, "inspect")
	return slices.ContainsFunc(s.Waiters, func(w lock.Holder) bool { return w.Label == label })
}

// forget leaves a lease to the end of its context.
func (c *caller) forget() error {
	ctx, cancel := context.WithTimeout(c.Ctx, time.Millisecond)
	defer cancel()
	_, err := c.p.Acquire(ctx, c.key("left"), c.ttl(3))
	if isOneOf(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// closeOne closes the leaving process. Its leases may outlive the context of
// Close, and end then.
func (c *caller) closeOne() error {
	ctx, cancel := context.WithTimeout(c.Ctx, time.Duration(c.IntN(5000))*time.Microsecond)
	defer cancel()
	c.closing.Store(true)
	_ = c.leaving.Close(ctx)
	return nil
}
