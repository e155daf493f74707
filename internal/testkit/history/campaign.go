package history

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock"
)

// Lead is [lock.Locker.Lead]. Each term is recorded as a lease that is released
// when fn returns.
func (c *Client) Lead(ctx context.Context, key string, fn func(context.Context) error) error {
	return c.campaign(key, fn, func(fn func(context.Context) error) error {
		return c.locker.Lead(ctx, key, fn)
	})
}

// Every is [lock.Locker.Every]. Each run is recorded as a lease, as a term of
// Lead is, and with its tick.
func (c *Client) Every(ctx context.Context, key string, every time.Duration, fn func(context.Context) error) error {
	work := func(ctx context.Context) error {
		c.ran(ctx, key)
		return fn(ctx)
	}
	return c.campaign(key, work, func(fn func(context.Context) error) error {
		return c.locker.Every(ctx, key, every, fn)
	})
}

// campaign calls run with fn, and records each call of fn as a lease.
func (c *Client) campaign(key string, fn func(context.Context) error, run func(func(context.Context) error) error) error {
	r := c.request(key)
	defer func() { r.withdraw() }()
	return run(func(ctx context.Context) error {
		release := r.granted(ctx)
		defer func() {
			release()
			r = c.request(key)
		}()
		return fn(ctx)
	})
}

// request is a recorded wait for a lease, which may never come.
type request struct {
	client *Client
	op     Op
	end    func(Op)
}

func (c *Client) request(key string) *request {
	op := Op{Client: c.name, Kind: Acquire, Key: key, Slots: 1}
	return &request{c, op, c.recorder.Begin(op)}
}

// withdraw records that no lease came.
func (r *request) withdraw() {
	r.op.Outcome = Unknown
	r.end(r.op)
}

// granted records the lease on ctx, and returns a function that records the end
// of its use.
func (r *request) granted(ctx context.Context) (release func()) {
	l, _ := lock.LeaseFrom(ctx) // Lead and Every run nothing without one
	lease := &Lease{l, r.client}
	r.op.Outcome = OK
	r.op.Token, r.op.Fence, r.op.Deadline = l.Token(), l.Fence(), onClock(l.Deadline())
	r.end(r.op)
	context.AfterFunc(ctx, func() { r.client.recorder.Ended(l.Token(), l.Deadline()) })
	return func() {
		op := lease.op(Release)
		op.Deadline = onClock(l.Deadline())
		end := r.client.recorder.Begin(op)
		op.Outcome = OK
		end(op)
	}
}

// ran records the run under the lease on ctx with its tick, as Inspect returns it.
// It records nothing if Inspect fails.
func (c *Client) ran(ctx context.Context, key string) {
	s, err := c.locker.Inspect(ctx, key)
	l, _ := lock.LeaseFrom(ctx)
	if err != nil || s.LastRun == nil || s.LastRun.Fence != l.Fence() {
		return
	}
	op := Op{Client: c.name, Kind: Run, Key: key, Fence: l.Fence(), Tick: s.LastRun.Tick}
	end := c.recorder.Begin(op)
	op.Outcome = OK
	end(op)
}

// CheckRuns returns an error that names the ticks of which there was more than
// one run (O1).
func (h History) CheckRuns() error {
	type tick struct {
		key    string
		number int64
	}
	first := map[tick]Op{}
	var found []string
	for _, op := range h.Ops {
		if op.Kind != Run {
			continue
		}
		at := tick{op.Key, op.Tick}
		if other, twice := first[at]; twice {
			found = append(found, fmt.Sprintf("key %q: tick %d ran twice:\n  %v\n  %v", op.Key, op.Tick, other, op))
		}
		first[at] = op
	}
	return complaint(found)
}
