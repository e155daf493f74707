package locktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Op names an operation of a driver.
type Op string

// The operations. Any matches each of them.
const (
	Any     Op = ""
	Acquire Op = "acquire"
	Renew   Op = "renew"
	Release Op = "release"
	Force   Op = "force" // of a key or of one slot
	Inspect Op = "inspect"
	List    Op = "list"
	Heal    Op = "heal"

	BeginRun Op = "begin run"
	EndRun   Op = "end run"
)

// Step is a fault of the calls of one operation. It takes effect before the
// request arrives, and a request with an error does not arrive. With Executed,
// it takes effect before the reply.
type Step struct {
	Op    Op
	After int // number of calls that pass first
	Times int // number of calls after them that are affected; 0 means all
	// Key, if set, limits the step to calls with this key.
	Key string

	Executed bool
	// Late delays the request by this time. The caller receives Err at once.
	Late time.Duration
	// Mute removes the channel Lost from a grant, as if no push could arrive.
	Mute bool
	// Stale makes a grant arrive past its deadline.
	Stale bool
	// Hang blocks the call until its context ends, and then returns the
	// context's error. Hold does the same, but only until the channel is
	// closed.
	Hang  bool
	Hold  <-chan struct{}
	Delay time.Duration // before the request arrives, or before the reply
	Err   error         // returned to the caller
}

// Plan holds the steps of [Faulty], and counts the calls. The zero value has no
// steps. It may be changed at any time, by any goroutine.
type Plan struct {
	mu    sync.Mutex // guards the fields below; never held during a call
	steps []*progress
	calls map[Op]int
	late  sync.WaitGroup // requests that have not arrived yet
}

type progress struct {
	Step
	seen, hit int
}

// Add adds a step, and returns a function that removes it. The first step that
// matches a call applies.
func (p *Plan) Add(s Step) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	added := &progress{Step: s}
	p.steps = append(p.steps, added)
	return func() { p.remove(added) }
}

func (p *Plan) remove(gone *progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.steps {
		if s == gone {
			p.steps = append(p.steps[:i:i], p.steps[i+1:]...)
			return
		}
	}
}

// Calls returns the number of calls of op, including the disturbed ones.
func (p *Plan) Calls(op Op) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if op != Any {
		return p.calls[op]
	}
	sum := 0
	for _, n := range p.calls {
		sum += n
	}
	return sum
}

// next counts a call and returns the step that applies to it.
func (p *Plan) next(op Op, key string) *Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls = make(map[Op]int)
	}
	p.calls[op]++
	for _, s := range p.steps {
		if s.takes(op, key) {
			step := s.Step
			return &step
		}
	}
	return nil
}

func (s *progress) takes(op Op, key string) bool {
	if s.Op != Any && s.Op != op || s.Key != "" && s.Key != key {
		return false
	}
	if s.seen++; s.seen <= s.After {
		return false
	}
	s.hit++
	return s.Times == 0 || s.hit <= s.Times
}

// pass blocks a call as the step requires. It returns the error of the call.
func (s *Step) pass(ctx context.Context) error {
	if s.Delay > 0 {
		timer := time.NewTimer(s.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.Hang || s.Hold != nil {
		select {
		case <-s.Hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Err
}

// disturb makes the call with the fault of the step.
func (p *Plan) disturb(ctx context.Context, s *Step, call func(context.Context)) error {
	switch {
	case s == nil:
		call(ctx)
		return nil
	case s.Late > 0:
		p.late.Go(func() {
			time.Sleep(s.Late)
			call(context.WithoutCancel(ctx))
		})
		return s.Err
	case s.Executed:
		call(ctx)
		return s.pass(ctx)
	}
	if err := s.pass(ctx); err != nil {
		return err
	}
	call(ctx)
	return nil
}

// Faulty returns d with the faults of plan between d and its caller. Info has
// no faults. Close has none either, but waits for late requests first. The
// result is a [driver.Asker] or a [driver.PoolDriver] if d is one.
func Faulty(d driver.Driver, plan *Plan) driver.Driver {
	f := &faulty{d, plan}
	asker, asks := d.(driver.Asker)
	pools, pooled := d.(driver.PoolDriver)
	switch {
	case asks && pooled:
		return struct {
			*faultyAsker
			faultyPools
		}{&faultyAsker{f, asker}, faultyPools{pools, plan}}
	case asks:
		return &faultyAsker{f, asker}
	case pooled:
		return struct {
			*faulty
			faultyPools
		}{f, faultyPools{pools, plan}}
	}
	return f
}

// faultyPools is the part of a faulty driver that operators of pools use.
type faultyPools struct {
	pools driver.PoolDriver
	plan  *Plan
}

func (f faultyPools) Heal(ctx context.Context, key string, slot int, reason string, by driver.Holder) error {
	found := new(reply[struct{}])
	if err := f.plan.disturb(ctx, f.plan.next(Heal, key), func(ctx context.Context) {
		found.err = f.pools.Heal(ctx, key, slot, reason, by)
	}); err != nil {
		return err
	}
	return found.err
}

// faultyAsker is a faulty driver whose Acquire has two parts. A step with
// Executed affects the grant, in the part that returns it.
type faultyAsker struct {
	*faulty
	asker driver.Asker
}

func (f *faultyAsker) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	s := f.plan.next(Acquire, r.Key)
	switch {
	case s == nil:
		return f.asker.Ask(ctx, r)
	case s.Late > 0:
		return driver.Grant{}, nil, f.plan.disturb(ctx, s, func(ctx context.Context) { _, _ = f.driver.Acquire(ctx, r) })
	case !s.Executed:
		if err := s.pass(ctx); err != nil {
			return driver.Grant{}, nil, err
		}
	}
	g, wait, err := f.asker.Ask(ctx, r)
	if wait == nil {
		g, err = s.reply(ctx, g, err)
		return g, nil, err
	}
	return driver.Grant{}, func(ctx context.Context) (driver.Grant, error) {
		g, err := wait(ctx)
		if errors.Is(err, driver.ErrPaused) {
			return g, err
		}
		return s.reply(ctx, g, err)
	}, nil
}

// reply returns the outcome of a call with the step applied.
func (s *Step) reply(ctx context.Context, g driver.Grant, err error) (driver.Grant, error) {
	if s.Executed {
		if failed := s.pass(ctx); failed != nil {
			return driver.Grant{}, failed
		}
	}
	return s.change(g), err
}

// change returns the grant with the step applied.
func (s *Step) change(g driver.Grant) driver.Grant {
	if s.Mute {
		g.Lost = nil
	}
	if s.Stale && !g.Deadline.IsZero() {
		g.Deadline = g.Deadline.Add(-2 * g.TTL)
	}
	return g
}

type faulty struct {
	driver driver.Driver
	plan   *Plan
}

func (f *faulty) Info() driver.Info { return f.driver.Info() }

func (f *faulty) Close(ctx context.Context) error {
	f.plan.late.Wait()
	return f.driver.Close(ctx)
}

// The methods below return a result only if disturb lets the call through: a
// late call has no caller that could read its result.

func (f *faulty) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	s := f.plan.next(Acquire, r.Key)
	found := new(reply[driver.Grant])
	if err := f.plan.disturb(ctx, s, func(ctx context.Context) { found.value, found.err = f.driver.Acquire(ctx, r) }); err != nil {
		return driver.Grant{}, err
	}
	if s != nil {
		found.value = s.change(found.value)
	}
	return found.value, found.err
}

// Renew treats a batch as one call with the key of its first grant.
func (f *faulty) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	key := ""
	if len(grants) > 0 {
		key = grants[0].Key
	}
	found := new(reply[[]driver.Renewal])
	err := f.plan.disturb(ctx, f.plan.next(Renew, key), func(ctx context.Context) { found.value = f.driver.Renew(ctx, grants) })
	if err == nil {
		return found.value
	}
	failed := make([]driver.Renewal, len(grants))
	for i := range failed {
		failed[i].Err = err
	}
	return failed
}

func (f *faulty) Release(ctx context.Context, g driver.Grant) error {
	found := new(reply[struct{}])
	if err := f.plan.disturb(ctx, f.plan.next(Release, g.Key), func(ctx context.Context) { found.err = f.driver.Release(ctx, g) }); err != nil {
		return err
	}
	return found.err
}

func (f *faulty) ForceRelease(ctx context.Context, key string, force driver.Force) (int, error) {
	found := new(reply[int])
	if err := f.plan.disturb(ctx, f.plan.next(Force, key), func(ctx context.Context) {
		found.value, found.err = f.driver.ForceRelease(ctx, key, force)
	}); err != nil {
		return 0, err
	}
	return found.value, found.err
}

func (f *faulty) Inspect(ctx context.Context, key string) (driver.State, error) {
	found := new(reply[driver.State])
	if err := f.plan.disturb(ctx, f.plan.next(Inspect, key), func(ctx context.Context) { found.value, found.err = f.driver.Inspect(ctx, key) }); err != nil {
		return driver.State{}, err
	}
	return found.value, found.err
}

func (f *faulty) List(ctx context.Context, prefix string) ([]driver.State, error) {
	found := new(reply[[]driver.State])
	if err := f.plan.disturb(ctx, f.plan.next(List, prefix), func(ctx context.Context) { found.value, found.err = f.driver.List(ctx, prefix) }); err != nil {
		return nil, err
	}
	return found.value, found.err
}

// BeginRun and EndRun return ErrUnsupported if the driver records no runs.

func (f *faulty) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	found := new(reply[driver.Run])
	if err := f.plan.disturb(ctx, f.plan.next(BeginRun, g.Key), func(ctx context.Context) {
		found.value, found.err = beginRun(ctx, f.driver, g, every, spend)
	}); err != nil {
		return driver.Run{}, err
	}
	return found.value, found.err
}

func (f *faulty) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	found := new(reply[struct{}])
	if err := f.plan.disturb(ctx, f.plan.next(EndRun, g.Key), func(ctx context.Context) { found.err = endRun(ctx, f.driver, g, r) }); err != nil {
		return err
	}
	return found.err
}

// reply holds the result of a call.
type reply[T any] struct {
	value T
	err   error
}
