package memory

import (
	"context"

	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// Limit is a driver of limits with the scope Process.
type Limit struct{ table *windows.Table }

var _ driver.Driver = (*Limit)(nil)

// NewLimit returns an empty driver. Two drivers share nothing: a process makes
// one.
func NewLimit() *Limit {
	return &Limit{windows.New(nil)}
}

// Info returns the driver's name and scope.
func (l *Limit) Info() driver.Info {
	return driver.Info{Name: "memory", Scope: driver.Process}
}

// Take implements [driver.Driver].
func (l *Limit) Take(_ context.Context, r driver.Request) (driver.Answer, error) {
	return l.table.Take(&r)
}

// Withdraw implements [driver.Driver].
func (l *Limit) Withdraw(_ context.Context, r driver.Request) error { return l.table.Withdraw(&r) }

// Settle implements [driver.Driver].
func (l *Limit) Settle(_ context.Context, s driver.Settlement) error { return l.table.Settle(&s) }

// Pause implements [driver.Driver].
func (l *Limit) Pause(_ context.Context, key string, p driver.Pause) error {
	return l.table.Pause(key, p)
}

// Reset implements [driver.Driver].
func (l *Limit) Reset(_ context.Context, key string) error { return l.table.Reset(key) }

// Inspect implements [driver.Driver].
func (l *Limit) Inspect(_ context.Context, key string, rates []driver.Rate) (driver.State, error) {
	return l.table.Inspect(key, rates)
}

// List implements [driver.Driver]. Each state is of one instant, but not all of
// the same instant.
func (l *Limit) List(_ context.Context, prefix string) ([]driver.State, error) {
	return l.table.List(prefix)
}

// Close implements [driver.Driver].
func (l *Limit) Close(context.Context) error {
	l.table.Close()
	return nil
}
