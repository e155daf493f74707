package table

import "sync/atomic"

// fences is the shared counter of all keys. A key has no counter, so that an
// unused key leaves no data behind.
type fences struct {
	last  atomic.Uint64
	clock *clock
}

// reserve returns the first of n unused fences. Fences are not below the
// microseconds since 1970, the scale that all drivers share, so that a stored
// fence stays valid over a restart and a change of driver.
func (f *fences) reserve(n int, now instant) uint64 {
	span := uint64(max(n, 1))
	floor := f.clock.unixMicro(now)
	for {
		last := f.last.Load()
		next := max(last+span, floor) // L2
		if f.last.CompareAndSwap(last, next) {
			return next - span + 1
		}
	}
}

// raise makes all later fences greater than last.
func (f *fences) raise(last uint64) {
	for {
		old := f.last.Load()
		if old >= last || f.last.CompareAndSwap(old, last) {
			return
		}
	}
}
