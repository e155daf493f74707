// Package lazyctx is for contexts that have no context of the standard library until
// something waits for their end. Most contexts of a call, a message or a slot end
// before that: they cost no timer and no place in their parent.
package lazyctx

import (
	"context"
	"sync/atomic"
)

// Inner is a context of the standard library, and the function that ends it, which
// may be called several times.
type Inner struct {
	context.Context
	End context.CancelCauseFunc
}

// State is the state of a context that uses an Inner from the time on at which
// something first waits for its end. From then on the methods of the context are those
// of the Inner, so that derived contexts attach to it without goroutines and
// context.Cause finds its cause. The zero State has not ended. Its methods may be
// called concurrently.
type State struct {
	ended atomic.Bool
	inner atomic.Pointer[Inner]
}

// Inner returns the Inner, or nil before Use.
func (s *State) Inner() *Inner { return s.inner.Load() }

// Ended reports whether End was called.
func (s *State) Ended() bool { return s.ended.Load() }

// End ends the context with cause, which may be nil, and reports whether it was the
// first call.
func (s *State) End(cause error) (first bool) {
	if s.ended.Swap(true) {
		return false
	}
	// Use stores the Inner before it reads ended, so one of the two ends it.
	if in := s.inner.Load(); in != nil {
		in.End(cause)
	}
	return true
}

// Use makes in the Inner, unless another goroutine was first, and returns the Inner.
// If the context has ended before, its Inner ends with cause. In that other case Use
// ends in, which nobody has.
func (s *State) Use(in *Inner, cause error) *Inner {
	if !s.inner.CompareAndSwap(nil, in) {
		in.End(nil)
		return s.inner.Load()
	}
	if s.ended.Load() {
		in.End(cause)
	}
	return in
}
