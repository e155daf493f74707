package guardtest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

// Target is a guarded store under test. It keeps a ledger for each key: the
// fences that were written, in their order. It has no fences and no lines yet
// for the keys "guardtest:…".
type Target struct {
	// Save checks the fences of the leases on ctx, appends fence to the ledger of
	// key and calls inside, as one transaction. inside may be nil. If it returns
	// an error or panics, Save returns the error or panics, and nothing is
	// written.
	Save func(ctx context.Context, key string, fence uint64, inside func() error) error
	// Ledger returns the ledger of key.
	Ledger func(ctx context.Context, key string) ([]uint64, error)
	// Reset deletes the fence of key.
	Reset func(ctx context.Context, key string) error
	// Script is set if check and write are one script of the store, so that
	// Save cannot call inside.
	Script bool
}

// Run runs the cases that a target can show. The rules G4 and G5 concern SQL
// alone and have their cases in package enginetest.
func Run(t *testing.T, target Target) {
	t.Helper()
	for _, c := range cases {
		if c.inside && target.Script {
			continue
		}
		t.Run(c.rule+" "+c.claim, func(t *testing.T) { c.run(env{t, target, "guardtest:" + strings.ReplaceAll(c.claim, " ", "-")}) })
	}
}

// testCase is one claim about one rule.
type testCase struct {
	rule, claim string
	inside      bool // needs a target that calls inside
	run         func(env)
}

var cases = []testCase{
	{"G1", "a write that fails leaves neither line nor fence", true, failedWrites},
	{"G1", "writers of a key are serial without the lock", true, serialWriters},
	{"G2", "an older fence is refused", false, olderFence},
	{"G3", "every lease is checked", false, everyLease},
	{"G3", "a live lease is needed", false, liveLease},
	{"G3", "a lease that ends before the commit ends the write", true, lostInside},
	{"G6", "slots have fences of their own", false, slots},
	{"G6", "a slot keeps its fence when a pool of one grows", false, slotOfOne},
	{"G7", "a refusal is counted and a reset forgets the key", false, reset},
}

// env is what a case gets. It uses keys that begin with key.
type env struct {
	testing.TB
	Target
	key string
}

// locker returns a Locker on a memory of its own, which stands for a process
// that does not know of the holders in others.
func (e env) locker() *lock.Locker {
	e.Helper()
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func (e env) acquire(ctx context.Context, key string, opts ...lock.Option) *lock.Lease {
	e.Helper()
	lease, err := e.locker().Acquire(ctx, key, opts...)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = lease.Release() })
	return lease
}

// save writes under lease and expects the error want.
func (e env) save(lease *lock.Lease, inside func() error, want error) {
	e.Helper()
	if err := e.Save(lease.Context(), lease.Key(), lease.Fence(), inside); !errors.Is(err, want) {
		e.Errorf("a write with the fence %d of %s: got %v, want %v", lease.Fence(), lease.Key(), err, want)
	}
}

// wantLedger checks the lines of a key.
func (e env) wantLedger(key string, want ...uint64) {
	e.Helper()
	if got, err := e.Ledger(e.Context(), key); err != nil || !slices.Equal(got, want) {
		e.Errorf("the ledger of %s has %v, %v, want %v", key, got, err, want)
	}
}

func failedWrites(e env) {
	early, late := e.acquire(e.Context(), e.key), e.acquire(e.Context(), e.key)
	failed := errors.New("failed")
	e.save(late, func() error { return failed }, failed)
	func() {
		defer func() {
			if recover() != "a panic inside" {
				e.Error("the panic was lost")
			}
		}()
		e.save(late, func() error { panic("a panic inside") }, nil)
	}()
	e.save(early, nil, nil) // the later fence was not kept
	e.wantLedger(e.key, early.Fence())
}

// serialWriters has many writers with one fence, as if all of them had lost the
// lock.
func serialWriters(e env) {
	lease := e.acquire(e.Context(), e.key)
	const writers, rounds = 4, 5
	var inside atomic.Int32
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range rounds {
				e.save(lease, func() error {
					defer inside.Add(-1)
					if n := inside.Add(1); n != 1 {
						e.Errorf("%d writers at once", n)
					}
					for range 100 {
						runtime.Gosched()
					}
					return nil
				}, nil)
			}
		})
	}
	all.Wait()
	e.wantLedger(e.key, slices.Repeat([]uint64{lease.Fence()}, writers*rounds)...)
}

func olderFence(e env) {
	early, late := e.acquire(e.Context(), e.key), e.acquire(e.Context(), e.key)
	e.save(early, nil, nil)
	e.save(early, nil, nil) // equal
	e.save(late, nil, nil)
	e.save(early, nil, lock.ErrStale)
	e.save(late, nil, nil)
	e.wantLedger(e.key, early.Fence(), early.Fence(), late.Fence(), late.Fence())
}

func everyLease(e env) {
	a, b := e.key+":a", e.key+":b"
	staleB := e.acquire(e.Context(), b)
	e.save(e.acquire(e.Context(), b), nil, nil)
	earlyA := e.acquire(e.Context(), a)
	e.save(e.acquire(staleB.Context(), a), nil, lock.ErrStale)
	e.save(earlyA, nil, nil) // the refused write recorded nothing of a
	e.wantLedger(a, earlyA.Fence())
}

func liveLease(e env) {
	outer := e.acquire(e.Context(), e.key+":outer")
	inner := e.acquire(outer.Context(), e.key)
	if err := outer.Release(); err != nil {
		e.Fatal(err)
	}
	for _, tt := range []struct {
		ctx  context.Context
		want error
	}{
		{e.Context(), lock.ErrNoLease},
		{lock.WithoutLease(inner.Context()), lock.ErrNoLease},
		{context.WithoutCancel(inner.Context()), lock.ErrLost}, // the outer lease has ended
	} {
		if err := e.Save(tt.ctx, e.key, inner.Fence(), nil); !errors.Is(err, tt.want) {
			e.Errorf("got %v, want %v", err, tt.want)
		}
	}
	e.wantLedger(e.key)
}

func lostInside(e env) {
	early, late := e.acquire(e.Context(), e.key), e.acquire(e.Context(), e.key)
	e.save(late, late.Release, lock.ErrLost)
	e.save(early, nil, nil)
	e.wantLedger(e.key, early.Fence())
}

func slots(e env) {
	l := e.locker()
	var leases [2]*lock.Lease
	for i := range leases {
		lease, err := l.Acquire(e.Context(), e.key, lock.Slots(2))
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() { _ = lease.Release() })
		leases[i] = lease
	}
	e.save(leases[1], nil, nil)
	e.save(leases[0], nil, nil) // the older fence of another slot
	e.wantLedger(e.key, leases[1].Fence(), leases[0].Fence())
}

// slotOfOne has a pool of one whose holder does not know that the pool has grown.
func slotOfOne(e env) {
	named := e.acquire(e.Context(), e.key, lock.Slots(1))
	one, err := e.locker().AcquireSlot(e.Context(), &lock.Pool{Key: e.key, Size: 1})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = one.Release() })
	grown := e.acquire(e.Context(), e.key, lock.Slots(2))
	e.save(one.Lease, nil, nil)
	e.save(grown, nil, nil)
	e.save(one.Lease, nil, lock.ErrStale)
	e.save(named, nil, lock.ErrStale)
	e.wantLedger(e.key, one.Fence(), grown.Fence())
}

func reset(e env) {
	l := e.locker()
	early, err := l.Acquire(e.Context(), e.key)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = early.Release() })
	late := e.acquire(e.Context(), e.key)
	e.save(late, nil, nil)
	e.save(early, nil, lock.ErrStale)
	if n := l.Stats().Stale; n != 1 {
		e.Errorf("%d refusals were counted, want 1", n)
	}
	if err := e.Reset(e.Context(), e.key); err != nil {
		e.Fatal(err)
	}
	e.save(early, nil, nil)
	e.wantLedger(e.key, late.Fence(), early.Fence())
}
