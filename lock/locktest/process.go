package locktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// process is a front with a separate driver, as in another program.
type process struct {
	*lock.Locker
	e      *env
	opened driver.Driver // the result of Open; the argument of faults
	plan   *Plan         // between the front and opened
	events *events
}

// process opens another process.
func (e *env) process(configure ...func(*lock.Config)) *process {
	opened, err := e.h.Open()
	e.Must(err, "open the driver")
	p := &process{e: e, opened: opened, plan: new(Plan), events: new(events)}
	config := lock.Config{TTL: e.Units(3), Wait: lock.Forever, Observer: p.events}
	for _, f := range configure {
		f(&config)
	}
	p.Locker, err = lock.New(Faulty(opened, p.plan), config)
	e.Must(err, "make a locker")
	e.AtEnd(p.shut)
	return p
}

// shut closes the process without waiting for the remaining leases of the case.
func (p *process) shut() {
	ctx, cancel := context.WithTimeout(context.Background(), p.e.Units(1))
	defer cancel()
	_ = p.Close(ctx)
}

// processes opens n processes.
func (e *env) processes(n int) []*process {
	all := make([]*process, n)
	for i := range all {
		all[i] = e.process()
	}
	return all
}

// acquire acquires a lease, or fails the case if that takes too long.
func (p *process) acquire(key string, opts ...lock.Option) *lock.Lease {
	a := p.ask(key, opts...)
	return a.lease()
}

// releases releases the leases and fails the case at an error.
func (e *env) releases(leases ...*lock.Lease) {
	for _, l := range leases {
		e.Must(l.Release(), "release fence %d", l.Fence())
	}
}

// try calls TryAcquire.
func (p *process) try(key string, opts ...lock.Option) (*lock.Lease, error) {
	ctx, cancel := p.e.Bounded()
	defer cancel()
	lease, err := p.TryAcquire(context.WithoutCancel(ctx), key, opts...)
	return lease, err
}

// busy fails the case unless key has a holder or a waiter.
func (p *process) busy(key string, opts ...lock.Option) {
	lease, err := p.try(key, opts...)
	if err == nil {
		p.e.Fail("%q was granted to another, with fence %d", key, lease.Fence())
	}
	p.e.Is(err, lock.ErrNotAcquired, "try %q", key)
}

// free fails the case unless key can be acquired soon.
func (p *process) free(key string) {
	p.e.Soon(key+" is free", func() bool { return p.isFree(key) })
}

// isFree reports whether key can be acquired now.
func (p *process) isFree(key string) bool {
	lease, err := p.try(key)
	return err == nil && lease.Release() == nil
}

// freeWithin fails the case unless key can be acquired within d.
func (p *process) freeWithin(d time.Duration, key string) {
	p.e.Eventually(d, key+" is free", func() bool { return p.isFree(key) })
}

// asked is a call of Acquire in progress.
type asked struct {
	e      *env
	key    string
	cancel context.CancelFunc
	done   chan struct{}
	got    *lock.Lease // set when done is closed
	err    error
	when   time.Time
}

// ask calls Acquire in a goroutine.
func (p *process) ask(key string, opts ...lock.Option) *asked {
	return p.askWith(p.e.Ctx, key, opts...)
}

// askWith is ask with a context for the wait; the lease does not depend on it.
func (p *process) askWith(ctx context.Context, key string, opts ...lock.Option) *asked {
	ctx, cancel := context.WithCancel(ctx)
	a := &asked{e: p.e, key: key, cancel: cancel, done: make(chan struct{})}
	p.e.AtEnd(cancel)
	p.e.Async(func() {
		defer close(a.done)
		a.got, a.err = p.Acquire(ctx, key, opts...)
		a.when = time.Now()
	})
	return a
}

// queue calls ask, and returns when the call waits in the queue.
func (p *process) queue(key, label string, opts ...lock.Option) *asked {
	a := p.ask(key, append(opts, lock.Label(label))...)
	p.isQueued(key, label)
	return a
}

// isQueued waits until a call with label waits for key.
func (p *process) isQueued(key, label string) {
	if !p.e.keeps("L7") { // the driver has no queue to inspect
		p.e.Soon(label+" waits", func() bool { return p.Stats().Waiting > 0 })
		return
	}
	p.e.Soon(label+" is queued for "+key, func() bool {
		s, err := p.Inspect(p.e.Ctx, key)
		if errors.Is(err, lock.ErrUnavailable) { // a backend that got no processor for a second
			return false
		}
		p.e.Must(err, "inspect")
		for _, w := range s.Waiters {
			if w.Label == label {
				return true
			}
		}
		return false
	})
}

// over reports whether the call has returned.
func (a *asked) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// wait waits at most bound until the call returns.
func (a *asked) wait(bound time.Duration) {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
		a.e.Fail("the call for %q has not returned within %v", a.key, bound)
	}
}

// lease returns the lease that the call acquired.
func (a *asked) lease() *lock.Lease { return a.leaseWithin(a.e.Patience()) }

func (a *asked) leaseWithin(bound time.Duration) *lock.Lease {
	a.wait(bound)
	a.e.Must(a.err, "acquire %q", a.key)
	return a.got
}

// refused returns the error of the call.
func (a *asked) refused() error {
	a.wait(a.e.Patience())
	if a.err == nil {
		a.e.Fail("%q was granted, with fence %d", a.key, a.got.Fence())
	}
	return a.err
}

// events is an Observer that records all events.
type events struct {
	mu  sync.Mutex // guards all
	all []lock.Event
}

// Observe implements lock.Observer.
func (o *events) Observe(e lock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, e)
}

func (o *events) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = nil
}

// eventsOf returns the recorded events of type E.
func eventsOf[E lock.Event](p *process) []E {
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	var found []E
	for _, e := range p.events.all {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// ended waits at most bound until the lease's context ends, and returns the
// cause.
func (e *env) ended(l *lock.Lease, bound time.Duration) error {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-l.Context().Done():
		return context.Cause(l.Context())
	case <-timer.C:
		e.Fail("the context of the lease with fence %d has not ended within %v", l.Fence(), bound)
		return nil
	}
}

// live fails the case if the lease is over.
func (e *env) live(l *lock.Lease) {
	if l.Context().Err() != nil {
		e.Fail("the lease with fence %d has ended: %w", l.Fence(), context.Cause(l.Context()))
	}
}
