package limittest

import (
	"context"
	"sync/atomic"

	"github.com/megaframework/mega/limit/driver"
)

// Share returns an Open whose drivers are processes that share d. Closing one of
// them does not affect d or the others. Their Info reports scope, so that a
// driver of scope Process can also replace a remote one, on fake time.
func Share(d driver.Driver, scope driver.Scope) func() (driver.Driver, error) {
	return func() (driver.Driver, error) { return &view{Driver: d, scope: scope}, nil }
}

// view is one process of a shared driver.
type view struct {
	driver.Driver
	scope  driver.Scope
	closed atomic.Bool
}

func (v *view) Info() driver.Info {
	info := v.Driver.Info()
	info.Scope = v.scope
	return info
}

func (v *view) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	if v.closed.Load() {
		return driver.Answer{}, driver.ErrClosed
	}
	return v.Driver.Take(ctx, r)
}

func (v *view) Close(context.Context) error {
	v.closed.Store(true)
	return nil
}
