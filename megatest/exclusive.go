package megatest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Exclusive runs fn n times at once. It fails the test if two of them are
// inside at the same time, if one never is, or if one returns an error. fn
// calls inside while it holds the lock:
//
//	megatest.Exclusive(t, 50, func(inside func()) error {
//		return kit.Ctx().Lock.With("report", func(ctx *mega.Ctx) error {
//			inside()
//			return nil
//		}, lock.Wait(time.Minute))
//	})
func Exclusive(t testing.TB, n int, fn func(inside func()) error) {
	t.Helper()
	var now, most, came atomic.Int64
	inside := func() {
		raise(&most, now.Add(1))
		for range 20 { // give the others a chance to get in
			runtime.Gosched()
		}
		now.Add(-1)
	}
	errs := make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			var first sync.Once // a run may come inside several times
			errs[i] = fn(func() {
				first.Do(func() { came.Add(1) })
				inside()
			})
		})
	}
	close(start)
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("run %d of %d: %v", i+1, n, err)
		}
	}
	if m := most.Load(); m > 1 {
		t.Errorf("%d were inside at once, want 1", m)
	}
	if c := came.Load(); c < int64(n) {
		t.Errorf("%d of %d came inside", c, n)
	}
}

// raise makes v at least n.
func raise(v *atomic.Int64, n int64) {
	for {
		old := v.Load()
		if n <= old || v.CompareAndSwap(old, n) {
			return
		}
	}
}
