package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// defect is one mistake of a driver.
type defect struct {
	rule   string
	is     string
	client bool // the defect is on the side of the process, not of the backend
	broken func() broken
}

// defects are drivers that break a rule, each as somebody might write it.
var defects = []defect{
	{"L1", "lends a lock twice", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			r.Slots++
			return d.Acquire(ctx, r)
		}}
	}},
	{"L1", "lets a grant expire at half of its TTL", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			r.TTL /= 2
			return d.Acquire(ctx, r)
		}}
	}},
	{"L1", "lets a slot of a pool expire at half of its TTL", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if r.Slots > 1 {
				r.TTL /= 2
			}
			return d.Acquire(ctx, r)
		}}
	}},
	{"L1", "lends a slot twice", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Slot /= 2
			return g, err
		}}
	}},
	{"L1", "loses its grants when it connects again", true, func() broken {
		held := new(sync.Map)
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if err == nil {
				held.Store(g.Token, g)
			}
			return g, err
		}, rejoin: func(d driver.Driver) {
			held.Range(func(_, g any) bool {
				_ = d.Release(context.Background(), g.(driver.Grant))
				return true
			})
		}}
	}},
	{"L2", "counts fences anew for each process", true, func() broken {
		var mu sync.Mutex
		next := uint64(time.Now().UnixMicro())
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			next += 100
			g.Fence = next
			return g, err
		}}
	}},
	{"L2", "counts fences from one", false, func() broken {
		start := uint64(time.Now().UnixMicro())
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Fence -= start
			return g, err
		}}
	}},
	{"L2", "counts fences below the last ones when it connects again", true, func() broken {
		var back atomic.Uint64
		return broken{rejoin: func(driver.Driver) {
			back.Add(uint64(time.Hour.Microseconds()))
		}, acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Fence -= back.Load()
			return g, err
		}}
	}},
	{"L2", "takes a new fence when it is asked again", false, func() broken {
		var more uint64
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			more++
			g.Fence += more
			return g, err
		}}
	}},
	{"L2", "reserves one fence where a span was asked for", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			span := r.Fences
			r.Fences = 1
			g, err := d.Acquire(ctx, r)
			g.Fences = span
			return g, err
		}}
	}},
	{"L3", "releases without comparing the token", false, func() broken {
		return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			err := d.Release(ctx, g)
			if errors.Is(err, driver.ErrLost) {
				_, _ = d.ForceRelease(ctx, g.Key, driver.Force{Reason: "released"})
			}
			return err
		}}
	}},
	{"L3", "renews what is not live", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			renewals := d.Renew(ctx, grants)
			for i := range renewals {
				if renewals[i].Err != nil {
					renewals[i] = driver.Renewal{Deadline: time.Now().Add(grants[i].TTL / 2)}
				}
			}
			return renewals
		}}
	}},
	{"L3", "brings an expired grant back when it is renewed", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			for _, g := range grants {
				_, _ = d.Acquire(ctx, driver.Request{Key: g.Key, Token: g.Token, TTL: g.TTL, Slots: 1})
			}
			return d.Renew(ctx, grants)
		}}
	}},
	{"L3", "fails a whole batch for one lost grant", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			renewals := d.Renew(ctx, grants)
			for _, lost := range renewals {
				for i := range renewals {
					if lost.Err != nil {
						renewals[i].Err = lost.Err
					}
				}
			}
			return renewals
		}}
	}},
	{"L4", "counts a grant from the reply", true, fromReply},
	{"L4", "counts a renewal from the reply", true, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			renewals := d.Renew(ctx, grants)
			for i := range renewals {
				renewals[i].Deadline = driver.Deadline(driver.Now(), grants[i].TTL)
			}
			return renewals
		}}
	}},
	{"L4", "leaves no margin", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Deadline = g.Deadline.Add(driver.Margin(g.TTL))
			return g, err
		}}
	}},
	{"L4", "has a push that never comes", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Lost = make(chan error)
			return g, err
		}}
	}},
	{"L4", "has a push that never comes for slots of a pool", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if r.Slots > 1 {
				g.Lost = make(chan error)
			}
			return g, err
		}}
	}},
	{"L4", "has a push for leases that were not waited for only", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			now := r
			now.Wait = 0
			g, err := d.Acquire(ctx, now)
			if r.Wait != 0 && errors.Is(err, driver.ErrNotAcquired) {
				g, err = d.Acquire(ctx, r)
				g.Lost = make(chan error)
			}
			return g, err
		}}
	}},
	{"L4", "renews without looking", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			renewals := d.Renew(ctx, grants)
			for i, g := range grants {
				renewals[i] = driver.Renewal{Deadline: driver.Deadline(time.Now(), g.TTL)}
			}
			return renewals
		}}
	}},
	{"L5", "reports a release that did not happen", false, func() broken {
		return broken{release: func(driver.Driver, context.Context, driver.Grant) error { return nil }}
	}},
	{"L5", "grants again what is renewed after its release", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			renewals := d.Renew(ctx, grants)
			for i, g := range grants {
				if renewals[i].Err != nil {
					g, err := d.Acquire(ctx, driver.Request{Key: g.Key, Token: g.Token + "x", TTL: g.TTL, Slots: 1})
					renewals[i] = driver.Renewal{Deadline: g.Deadline, Err: err}
				}
			}
			return renewals
		}}
	}},
	{"O5", "ignores a cooldown", false, func() broken {
		return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			g.Rest = 0
			return d.Release(ctx, g)
		}}
	}},
	{"O5", "ignores the cooldown of a slot", false, func() broken {
		return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			if isPool(d, ctx, g.Key) {
				g.Rest = 0
			}
			return d.Release(ctx, g)
		}}
	}},
	{"O5", "begins a cooldown again with each copy of its release", false, func() broken {
		var copies atomic.Uint64
		return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			g.Rev += copies.Add(1)
			return d.Release(ctx, g)
		}}
	}},
	{"O5", "ends a cooldown with its process", true, func() broken {
		r := new(rests)
		return broken{release: r.release, close: func(d driver.Driver, ctx context.Context) error {
			r.end(d)
			return d.Close(ctx)
		}}
	}},
	{"O5", "ends a cooldown when it connects again", true, func() broken {
		r := new(rests)
		return broken{release: r.release, rejoin: r.end}
	}},
	{"L6", "is busy for its own holder", false, func() broken {
		var mu sync.Mutex
		seen := make(map[string]bool)
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			mu.Lock()
			again := seen[r.Token]
			seen[r.Token] = true
			mu.Unlock()
			if again {
				return driver.Grant{}, &driver.NotAcquiredError{Key: r.Key}
			}
			return d.Acquire(ctx, r)
		}}
	}},
	{"L6", "counts a grant from the last of its requests", true, fromReply},
	{"L6", "gives a second slot when it is asked again", false, func() broken {
		var mu sync.Mutex
		seen := make(map[string]int)
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			mu.Lock()
			n := seen[r.Token]
			seen[r.Token]++
			mu.Unlock()
			if n > 0 {
				r.Token += fmt.Sprint(n)
			}
			return d.Acquire(ctx, r)
		}}
	}},
	{"L6", "ends the holder of a slot with a late copy of the release before", false, func() broken {
		released := new(sync.Map) // tokens
		return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			err := d.Release(ctx, g)
			if _, again := released.LoadOrStore(g.Token, true); again && errors.Is(err, driver.ErrLost) {
				_, _ = d.ForceRelease(ctx, g.Key, driver.Force{BySlot: true, Slot: g.Slot, Reason: "released"})
			}
			return err
		}}
	}},
	{"L6", "prolongs the grant of a successor with a late copy of an extension", false, func() broken {
		grants := new(sync.Map) // the newest one by key
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if err == nil {
				grants.Store(g.Key, g)
			}
			return g, err
		}, renew: func(d driver.Driver, ctx context.Context, all []driver.Grant) []driver.Renewal {
			renewals := d.Renew(ctx, all)
			for i, g := range all {
				if newest, ok := grants.Load(g.Key); ok && g.Rev > 0 && errors.Is(renewals[i].Err, driver.ErrLost) {
					successor := newest.(driver.Grant)
					successor.TTL, successor.Rev = g.TTL, g.Rev
					d.Renew(ctx, []driver.Grant{successor})
				}
			}
			return renewals
		}}
	}},
	{"L6", "grants the slot of a successor to a late copy of the request before", false, func() broken {
		grants := new(sync.Map) // by token
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if old, ok := grants.Load(r.Token); ok && errors.Is(err, driver.ErrNotAcquired) {
				return old.(driver.Grant), nil
			}
			if err == nil {
				grants.Store(r.Token, g)
			}
			return g, err
		}}
	}},
	{"L6", "does not bar a token that was released before it came", false, func() broken {
		return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			s, _ := d.Inspect(ctx, g.Key)
			if len(s.Holders)+len(s.Waiters) == 0 {
				return &driver.LostError{Key: g.Key, Cause: driver.Expired}
			}
			return d.Release(ctx, g)
		}}
	}},
	{"L7", "lets everyone try again after a random while", false, func() broken { return broken{acquire: poll} }},
	{"L7", "serves the last one first", false, func() broken {
		stack := new(stack)
		return broken{acquire: stack.acquire}
	}},
	{"L8", "leaves a waiter in the queue that has given up", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			type reply struct {
				g   driver.Grant
				err error
			}
			c := make(chan reply, 1)
			if r.Wait < 0 {
				r.Wait = 30 * time.Minute // or the bubble would not end
			}
			go func() {
				g, err := d.Acquire(context.WithoutCancel(ctx), r)
				c <- reply{g, err}
			}()
			select {
			case r := <-c:
				return r.g, r.err
			case <-ctx.Done():
				return driver.Grant{}, ctx.Err()
			}
		}, release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			if g.Fence == 0 {
				return &driver.LostError{Key: g.Key, Cause: driver.Expired} // it looks for holders only
			}
			return d.Release(ctx, g)
		}}
	}},
	{"L9", "polls", false, func() broken { return broken{acquire: poll} }},
	{"L12", "reports a renewal that did not happen", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			look := make([]driver.Grant, len(grants))
			for i, g := range grants {
				g.NoRenew = true
				look[i] = g
			}
			renewals := d.Renew(ctx, look)
			for i, g := range grants {
				renewals[i].Deadline = driver.Deadline(time.Now(), g.TTL)
			}
			return renewals
		}}
	}},
	{"L12", "does not shorten the life of a slot", false, func() broken {
		return renewingSlots(func(d driver.Driver, ctx context.Context, g *driver.Grant) {
			s, _ := d.Inspect(ctx, g.Key)
			for _, h := range s.Holders {
				if h.Slot == g.Slot {
					g.TTL = max(g.TTL, h.Left)
				}
			}
		})
	}},
	{"L12", "takes a late copy for a renewal of a slot", false, func() broken {
		return renewingSlots(func(_ driver.Driver, _ context.Context, g *driver.Grant) { g.Rev = 1 })
	}},
	{"L14", "takes keys for the same that begin with the same 256 bytes", false, func() broken {
		held := new(sync.Map) // by the beginning
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			begin := r.Key[:min(len(r.Key), 256)]
			if other, ok := held.LoadOrStore(begin, r.Key); ok && other != r.Key {
				return driver.Grant{}, &driver.NotAcquiredError{Key: r.Key}
			}
			return d.Acquire(ctx, r)
		}}
	}},
	{"L14", "lends for an hour at most", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			r.TTL = min(r.TTL, time.Hour)
			return d.Acquire(ctx, r)
		}}
	}},
	{"L14", "has no pool of more than 1024 slots", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			r.Slots = min(r.Slots, 1024)
			return d.Acquire(ctx, r)
		}}
	}},
	{"L14", "drops the braces of keys", false, func() broken {
		braces := strings.NewReplacer("{", "", "}", "")
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if bare := braces.Replace(r.Key); bare != r.Key {
				if s, _ := d.Inspect(ctx, bare); len(s.Holders) > 0 {
					return driver.Grant{}, &driver.NotAcquiredError{Key: r.Key}
				}
			}
			return d.Acquire(ctx, r)
		}}
	}},
	{"L15", "keeps the first size of a pool", false, func() broken {
		var mu sync.Mutex
		sizes := make(map[string]int)
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			mu.Lock()
			if sizes[r.Key] == 0 {
				sizes[r.Key] = r.Slots
			}
			r.Slots = sizes[r.Key]
			mu.Unlock()
			return d.Acquire(ctx, r)
		}}
	}},
	{"L15", "never shrinks a pool", false, func() broken {
		var mu sync.Mutex
		sizes := make(map[string]int)
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			mu.Lock()
			sizes[r.Key] = max(sizes[r.Key], r.Slots)
			r.Slots = sizes[r.Key]
			mu.Unlock()
			return d.Acquire(ctx, r)
		}}
	}},
	{"L15", "reports the size of an unused pool", false, func() broken {
		var sizes sync.Map // of the last request, by key
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if last, ok := sizes.Swap(r.Key, r.Slots); ok && last != r.Slots && g.Resized == 0 {
				g.Resized = last.(int)
			}
			return g, err
		}}
	}},
	{"L15", "takes the size of a request that it has had already", false, func() broken {
		seen := new(sync.Map) // tokens
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if _, again := seen.LoadOrStore(r.Token, true); again {
				resize(d, ctx, r)
			}
			return d.Acquire(ctx, r)
		}}
	}},
	{"L15", "takes the size of the first request of each process when it connects again", true, func() broken {
		first := new(sync.Map) // requests by key
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			first.LoadOrStore(r.Key, r)
			return d.Acquire(ctx, r)
		}, rejoin: func(d driver.Driver) {
			first.Range(func(_, r any) bool {
				resize(d, context.Background(), r.(driver.Request))
				return true
			})
		}}
	}},
	{"L15", "forgets the size of a pool whose slot 0 is free", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			s, _ := d.Inspect(ctx, r.Key)
			g, err := d.Acquire(ctx, r)
			if len(s.Holders) > 0 && s.Holders[0].Slot > 0 {
				g.Resized = 0
			}
			return g, err
		}}
	}},
	{"L15", "forgets the size of a pool without holders", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			s, _ := d.Inspect(ctx, r.Key)
			g, err := d.Acquire(ctx, r)
			if busy, ok := errors.AsType[*driver.NotAcquiredError](err); ok && len(s.Holders) == 0 {
				busy.Resized = 0
			}
			return g, err
		}}
	}},
	{"L15", "does not report a different size", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Resized = 0
			return g, err
		}}
	}},
	{"L16", "does not report the reason of a force", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			renewals := d.Renew(ctx, grants)
			for i, g := range grants {
				if errors.Is(renewals[i].Err, driver.ErrLost) {
					renewals[i].Err = &driver.LostError{Key: g.Key, Cause: driver.Expired}
				}
			}
			return renewals
		}}
	}},
	{"L16", "frees one slot of a pool", false, func() broken {
		return broken{force: func(d driver.Driver, ctx context.Context, key string, f driver.Force) (int, error) {
			s, err := d.Inspect(ctx, key)
			if err != nil || len(s.Holders) > 1 {
				return 1, err
			}
			return d.ForceRelease(ctx, key, f)
		}}
	}},
	{"L16", "frees every slot for a force of one", false, func() broken {
		return broken{force: func(d driver.Driver, ctx context.Context, key string, f driver.Force) (int, error) {
			f.BySlot = false
			return d.ForceRelease(ctx, key, f)
		}}
	}},
	{"L16", "ends a successor for a force of one fence", false, func() broken {
		return broken{force: func(d driver.Driver, ctx context.Context, key string, f driver.Force) (int, error) {
			f.ByFence = false
			return d.ForceRelease(ctx, key, f)
		}}
	}},
	{"L16", "does nothing when it is forced", false, func() broken {
		return broken{force: func(d driver.Driver, ctx context.Context, key string, _ driver.Force) (int, error) {
			s, err := d.Inspect(ctx, key)
			return len(s.Holders), err
		}}
	}},
	{"L17", "leaves its waiters waiting when it is closed", true, func() broken {
		return broken{close: func(driver.Driver, context.Context) error { return nil }}
	}},
	{"L18", "leaves a goroutine behind now and then", false, func() broken {
		var grants atomic.Int64
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if grants.Add(1)%50 == 0 {
				go time.Sleep(30 * time.Minute)
			}
			return d.Acquire(ctx, r)
		}}
	}},
	{"O5", "takes a cooldown for a lease when it connects again", true, func() func() broken {
		all := new(rests)
		var waits atomic.Bool
		return func() broken {
			return broken{release: all.release, rejoin: func(driver.Driver) {
				waits.Store(all.any())
			}, acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
				if waits.Load() {
					return driver.Grant{}, fmt.Errorf("%w: waits for the end of all leases", driver.ErrUnavailable)
				}
				return d.Acquire(ctx, r)
			}}
		}
	}()},
}

func isPool(d driver.Driver, ctx context.Context, key string) bool {
	s, _ := d.Inspect(ctx, key)
	return s.Size > 1
}

// fromReply counts the life of a grant from the reply to each request.
func fromReply() broken {
	return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
		g, err := d.Acquire(ctx, r)
		g.Deadline = driver.Deadline(driver.Now(), g.TTL)
		return g, err
	}}
}

// renewingSlots changes the renewals of slots of pools.
func renewingSlots(change func(d driver.Driver, ctx context.Context, g *driver.Grant)) broken {
	return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
		grants = slices.Clone(grants)
		for i := range grants {
			if g := &grants[i]; isPool(d, ctx, g.Key) {
				change(d, ctx, g)
			}
		}
		return d.Renew(ctx, grants)
	}}
}

// resize makes the pool of r as large as r says, by a request that does not wait.
func resize(d driver.Driver, ctx context.Context, r driver.Request) {
	r.Token, r.Wait = r.Token+"-size", 0
	if g, err := d.Acquire(ctx, r); err == nil {
		_ = d.Release(ctx, g)
	}
}

// rests holds the grants that were released with a cooldown.
type rests struct {
	mu  sync.Mutex // guards all
	all []driver.Grant
}

func (r *rests) release(d driver.Driver, ctx context.Context, g driver.Grant) error {
	if g.Rest > 0 {
		r.mu.Lock()
		r.all = append(r.all, g)
		r.mu.Unlock()
	}
	return d.Release(ctx, g)
}

func (r *rests) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all) > 0
}

// end ends the cooldowns.
func (r *rests) end(d driver.Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	for _, g := range r.all {
		g.Rest = 0
		_ = d.Release(ctx, g)
	}
}
