package lock_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// fleet is a memory driver that says it is shared by a fleet, so that the front
// puts its local queue before it, and that counts what is asked of it. Several
// Lockers over views of one fleet are several processes.
type fleet struct {
	driver.Driver
	calls *calls
}

type calls struct {
	mu       sync.Mutex
	acquires []driver.Request
	inspects int
	fail     error // what Acquire answers, if not nil
}

func newFleet() fleet { return fleet{memory.NewLock(), &calls{}} }

func (f fleet) Info() driver.Info {
	info := f.Driver.Info()
	info.Scope = driver.Fleet
	return info
}

func (f fleet) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	f.calls.mu.Lock()
	f.calls.acquires = append(f.calls.acquires, r)
	fail := f.calls.fail
	f.calls.mu.Unlock()
	if fail != nil {
		return driver.Grant{}, fail
	}
	return f.Driver.Acquire(ctx, r)
}

func (f fleet) Inspect(ctx context.Context, key string) (driver.State, error) {
	f.calls.mu.Lock()
	f.calls.inspects++
	f.calls.mu.Unlock()
	return f.Driver.Inspect(ctx, key)
}

// Close leaves the shared driver open for the other processes.
func (f fleet) Close(context.Context) error { return nil }

// asked returns how many requests were sent for callers, probes left out.
func (f fleet) asked() (n int) {
	f.calls.mu.Lock()
	defer f.calls.mu.Unlock()
	for _, r := range f.calls.acquires {
		if !strings.HasPrefix(r.Key, "mega.probe:") {
			n++
		}
	}
	return n
}

// process returns a Locker over d that the test closes.
func process(t *testing.T, d driver.Driver, c lock.Config) *lock.Locker {
	t.Helper()
	l, err := lock.New(d, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func acquire(t *testing.T, l *lock.Locker, key string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func release(t *testing.T, lease *lock.Lease) {
	t.Helper()
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// recorder is an Observer that records its events.
type recorder struct {
	mu     sync.Mutex
	events []lock.Event
}

func (r *recorder) Observe(e lock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// eventsOf returns the events of type E.
func eventsOf[E lock.Event](r *recorder) (all []E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e, ok := e.(E); ok {
			all = append(all, e)
		}
	}
	return all
}
