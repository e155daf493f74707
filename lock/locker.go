package lock

import (
	"context"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

type Locker struct{ config Config }
type Lease struct{}

func New(d driver.Driver, c Config) (*Locker, error) { panic("stub") }
func (l *Locker) With(ctx context.Context, key string, fn func(context.Context) error, opts ...Option) error {
	panic("stub")
}
func (l *Locker) Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	panic("stub")
}
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	panic("stub")
}
func (l *Locker) ForceRelease(ctx context.Context, key, reason string) (released int, err error) {
	panic("stub")
}
func (l *Locker) Stats() Stats                                             { panic("stub") }
func (l *Locker) Inspect(ctx context.Context, key string) (State, error)   { panic("stub") }
func (l *Locker) List(ctx context.Context, prefix string) ([]State, error) { panic("stub") }
func (l *Locker) Info() driver.Info                                        { panic("stub") }
func (l *Locker) Close(ctx context.Context) error                          { panic("stub") }
func (l *Lease) Key() string                                               { panic("stub") }
func (l *Lease) Token() string                                             { panic("stub") }
func (l *Lease) Fence() uint64                                             { panic("stub") }
func (l *Lease) Slot() int                                                 { panic("stub") }
func (l *Lease) Context() context.Context                                  { panic("stub") }
func (l *Lease) Deadline() time.Time                                       { panic("stub") }
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error       { panic("stub") }
func (l *Lease) Release() error                                            { panic("stub") }
func LeaseFrom(ctx context.Context) (*Lease, bool)                         { panic("stub") }
