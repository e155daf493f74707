package history

import (
	"context"
	"errors"
	"time"

	"github.com/megaframework/mega/lock"
)

// Client uses a Locker and records its calls. A Client makes one call at a
// time; a process may have several Clients.
type Client struct {
	name     string
	locker   *lock.Locker
	recorder *Recorder
}

// NewClient returns a client with a name that is unique in the history.
func NewClient(name string, l *lock.Locker, r *Recorder) *Client {
	return &Client{name: name, locker: l, recorder: r}
}

// Lease is a lease whose use is recorded.
type Lease struct {
	*lock.Lease
	client *Client
}

// Acquire is [lock.Locker.Acquire] of a pool with that many slots, 1 for a
// plain lock.
func (c *Client) Acquire(ctx context.Context, key string, slots int, opts ...lock.Option) (*Lease, error) {
	return c.acquire(ctx, c.locker.Acquire, key, slots, opts)
}

// TryAcquire is [lock.Locker.TryAcquire].
func (c *Client) TryAcquire(ctx context.Context, key string, slots int, opts ...lock.Option) (*Lease, error) {
	return c.acquire(ctx, c.locker.TryAcquire, key, slots, opts)
}

type acquire func(ctx context.Context, key string, opts ...lock.Option) (*lock.Lease, error)

func (c *Client) acquire(ctx context.Context, ask acquire, key string, slots int, opts []lock.Option) (*Lease, error) {
	op := Op{Client: c.name, Kind: Acquire, Key: key, Slots: slots}
	end := c.recorder.Begin(op)
	lease, err := ask(ctx, key, append(opts, lock.Slots(slots))...)
	if err != nil {
		op.Outcome, op.Err = outcome(err), err.Error()
		end(op)
		return nil, err
	}
	op.Outcome = OK
	op.Token, op.Fence, op.Slot, op.Deadline = lease.Token(), lease.Fence(), lease.Slot(), onClock(lease.Deadline())
	end(op)
	context.AfterFunc(lease.Context(), func() { c.recorder.Ended(lease.Token(), lease.Deadline()) })
	return &Lease{lease, c}, nil
}

// Extend is [lock.Lease.Extend].
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	op := l.op(Extend)
	end := l.client.recorder.Begin(op)
	err := l.Lease.Extend(ctx, ttl)
	op.Outcome = outcome(err)
	if err == nil || op.Outcome == Lost {
		op.Deadline = onClock(l.Deadline())
	}
	if err != nil {
		op.Err = err.Error()
	}
	end(op)
	return err
}

// Release is [lock.Lease.Release], to be called once.
func (l *Lease) Release() error {
	op := l.op(Release)
	op.Deadline = onClock(l.Deadline())
	end := l.client.recorder.Begin(op)
	err := l.Lease.Release()
	if op.Outcome = outcome(err); err != nil {
		op.Err = err.Error()
	}
	end(op)
	return err
}

// ForceRelease is [lock.Locker.ForceRelease].
func (c *Client) ForceRelease(ctx context.Context, key, reason string) (int, error) {
	op := Op{Client: c.name, Kind: Force, Key: key}
	end := c.recorder.Begin(op)
	n, err := c.locker.ForceRelease(ctx, key, reason)
	if op.Outcome = outcome(err); err != nil {
		op.Err = err.Error()
	}
	end(op)
	return n, err
}

// Forget records that the backend may lose its knowledge of key, and return
// with an older state, until the returned function is called.
func (c *Client) Forget(key string) (done func()) {
	op := Op{Client: c.name, Kind: Forget, Key: key}
	end := c.recorder.Begin(op)
	op.Outcome = OK
	return func() { end(op) }
}

func (l *Lease) op(kind Kind) Op {
	return Op{Client: l.client.name, Kind: kind, Key: l.Key(), Token: l.Token(), Fence: l.Fence(), Slot: l.Slot()}
}

// outcome classifies the result of a call. A result that is neither success nor
// a refusal means that the call may have had an effect, or may have one later.
func outcome(err error) Outcome {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, lock.ErrNotAcquired) && !isContext(err):
		return Busy
	case errors.Is(err, lock.ErrLost):
		return Lost
	}
	return Unknown
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
