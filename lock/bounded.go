package lock

import (
	"context"
	"time"

	"github.com/megaframework/mega/internal/lazyctx"
)

// bounded is the context of a call of the driver. It ends with its parent, with
// the Locker's Close, at its deadline, and with end. Like a leaseContext, it has
// no state until something waits for its end: most calls return before their
// driver does.
type bounded struct {
	parent  context.Context
	closing context.Context // ends it, too; nil for none
	until   time.Time       // zero for none
	lazy    lazyctx.State
}

// end ends the context.
func (b *bounded) end() { b.lazy.End(nil) }

func (b *bounded) Deadline() (time.Time, bool) {
	d, ok := b.parent.Deadline()
	if b.until.IsZero() || ok && d.Before(b.until) {
		return d, ok
	}
	return b.until, true
}

func (b *bounded) Done() <-chan struct{} { return b.innerContext().Done() }

// Err checks the clock too, because a timer may fire late.
func (b *bounded) Err() error {
	if b.lazy.Inner() == nil && !b.passed() {
		return nil
	}
	return b.innerContext().Err()
}

// passed reports whether the context has ended.
func (b *bounded) passed() bool {
	return b.lazy.Ended() || b.parent.Err() != nil || b.closed() || !b.until.IsZero() && !time.Now().Before(b.until)
}

func (b *bounded) closed() bool { return b.closing != nil && b.closing.Err() != nil }

func (b *bounded) Value(key any) any {
	if in := b.lazy.Inner(); in != nil {
		return in.Value(key)
	}
	return b.parent.Value(key)
}

// String returns the name of the context in the texts of derived contexts.
func (b *bounded) String() string { return "lock.call" }

// innerContext returns the inner context and makes it at the first call.
func (b *bounded) innerContext() *lazyctx.Inner {
	if in := b.lazy.Inner(); in != nil {
		return in
	}
	return b.lazy.Use(b.open(), nil)
}

func (b *bounded) open() *lazyctx.Inner {
	var ctx context.Context
	var cancel context.CancelFunc
	if b.until.IsZero() {
		ctx, cancel = context.WithCancel(b.parent)
	} else {
		ctx, cancel = context.WithDeadline(b.parent, b.until)
	}
	if b.closing == nil {
		return &lazyctx.Inner{Context: ctx, End: func(error) { cancel() }}
	}
	stop := context.AfterFunc(b.closing, cancel)
	if b.closed() {
		cancel() // AfterFunc calls it on a goroutine, later
	}
	return &lazyctx.Inner{Context: ctx, End: func(error) { stop(); cancel() }}
}
