package history

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/lock"
)

// Slot is a slot of a pool whose use is recorded.
type Slot struct {
	*lock.Slot
	client *Client
	broken *atomic.Bool // its Cleanup fails from now on
}

// errBroken is the error of a Cleanup that withdraws its slot.
var errBroken = errors.New("the slot is broken")

// AcquireSlot is [lock.Locker.AcquireSlot] of a pool of size slots. The end of
// ctx does not end the wait: a caller that has left may have cleaned a slot that
// it has found dirty, and the history would not show it.
func (c *Client) AcquireSlot(ctx context.Context, key string, size int, opts ...lock.Option) (*Slot, error) {
	broken := new(atomic.Bool)
	pool := &lock.Pool{Key: key, Size: size, Cleanup: func(context.Context, *lock.Slot) error {
		if broken.Load() {
			return errBroken
		}
		return nil
	}}
	op := Op{Client: c.name, Kind: Acquire, Key: key, Slots: size}
	end := c.recorder.Begin(op)
	s, err := c.locker.AcquireSlot(context.WithoutCancel(ctx), pool, opts...)
	if err != nil {
		op.Outcome, op.Err = outcome(err), err.Error()
		end(op)
		return nil, err
	}
	op.Outcome, op.Found = OK, Clean
	if left := s.Left(); left != nil {
		op.Found = left.Why
	}
	op.Token, op.Fence, op.Slot, op.Deadline = s.Token(), s.Fence(), s.Number(), onClock(s.Deadline())
	end(op)
	context.AfterFunc(s.Lease.Context(), func() { c.recorder.Ended(s.Token(), s.Deadline()) })
	return &Slot{s, c, broken}, nil
}

// Release is [lock.Slot.Release], to be called once.
func (s *Slot) Release() error { return s.release(lock.SlotFree) }

// Withdraw is Release with a Cleanup that fails, which withdraws the slot.
func (s *Slot) Withdraw() error {
	s.broken.Store(true)
	return s.release(lock.SlotWithdrawn)
}

func (s *Slot) release(to lock.SlotStatus) error {
	op := (&Lease{s.Lease, s.client}).op(Release)
	op.Deadline = onClock(s.Deadline())
	if s.Lease.Err() == nil {
		op.Handback = to
	}
	end := s.client.recorder.Begin(op)
	err := s.Slot.Release()
	if errors.Is(err, errBroken) {
		err = nil // it was handed back as it should
	}
	if op.Outcome = outcome(err); err != nil {
		op.Err = err.Error()
	}
	end(op)
	return err
}

// Heal is [lock.Locker.Heal].
func (c *Client) Heal(ctx context.Context, key string, slot int, reason string) error {
	op := Op{Client: c.name, Kind: Heal, Key: key, Slot: slot}
	end := c.recorder.Begin(op)
	err := c.locker.Heal(ctx, key, slot, reason)
	if op.Outcome = outcome(err); err != nil {
		op.Err = err.Error()
	}
	end(op)
	return err
}

// UseSlot takes a slot once, as users do: it waits for a while, holds the slot,
// sometimes for longer than its TTL without a renewal, and hands it back. A slot
// that it withdraws it heals.
func (c *Client) UseSlot(ctx context.Context, key string, size int, ttl time.Duration) error {
	s, err := c.AcquireSlot(ctx, key, size, lock.TTL(ttl), lock.Wait(time.Duration(rand.IntN(2000))*time.Millisecond))
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	if rand.IntN(8) > 0 {
		return s.Release()
	}
	return errors.Join(s.Withdraw(), c.Heal(ctx, key, s.Number(), "it was broken for a test"))
}
