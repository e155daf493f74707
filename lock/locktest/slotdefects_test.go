package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// slotDefects are mistakes of a backend that keeps the states of slots.
var slotDefects = []defect{
	{"P1", "grants a slot of a pool twice", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Slot /= 2
			return g, err
		}}
	}},
	{"P1", "grants a slot of a holder without states again", false, func() broken {
		var plain sync.Map // grants without a record, by key
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if err == nil && r.Pool == nil {
				plain.Store(r.Key, g)
			} else if old, ok := plain.LoadAndDelete(r.Key); ok && err == nil {
				g.Slot = old.(driver.Grant).Slot
			}
			return g, err
		}}
	}},
	{"P3", "ends the holder of a slot with an old release", false, func() broken {
		return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			err := d.Release(ctx, g)
			if err != nil && g.Handback != nil {
				_, _ = d.ForceRelease(ctx, g.Key, driver.Force{BySlot: true, Slot: g.Slot, Reason: "handed back"})
			}
			return err
		}}
	}},
	{"P4", "grants a slot as clean after the crash of its holder", false, func() broken { return takesForClean(driver.LeftExpired) }},
	{"P4", "does not record whose slot it was", false, func() broken {
		return found(func(f *driver.Found) {
			if f.Left != nil {
				f.Left = &driver.Leaving{At: f.Left.At, Why: f.Left.Why}
			}
		})
	}},
	{"P4", "repeats a release at the next backend, whoever has the slot", true, func() broken {
		var requests, failed sync.Map // by token
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			requests.Store(r.Token, r)
			return d.Acquire(ctx, r)
		}, release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			err := d.Release(ctx, g)
			if errors.Is(err, driver.ErrUnavailable) {
				failed.Store(g.Token, g)
			}
			return err
		}, rejoin: func(d driver.Driver) {
			failed.Range(func(token, old any) bool {
				ctx, g := context.Background(), old.(driver.Grant)
				r, _ := requests.Load(token)
				again := r.(driver.Request)
				again.Token += "x"
				_, _ = d.ForceRelease(ctx, g.Key, driver.Force{BySlot: true, Slot: g.Slot, Reason: "released"})
				if mine, err := d.Acquire(ctx, again); err == nil {
					mine.Handback = g.Handback
					_ = d.Release(ctx, mine)
				}
				return true
			})
		}}
	}},
	{"P5", "loses the handback", false, func() broken {
		return handback(func(*driver.Handback) *driver.Handback { return nil })
	}},
	{"P5", "loses the note", false, func() broken {
		return handback(func(h *driver.Handback) *driver.Handback {
			without := *h
			without.Note = ""
			return &without
		})
	}},
	{"P5", "takes an untouched slot for clean", false, func() broken {
		return handback(func(h *driver.Handback) *driver.Handback {
			if h.Status == driver.SlotDirty {
				return &driver.Handback{Status: driver.SlotFree}
			}
			return h
		})
	}},
	{"P5", "forgets who has left an untouched slot", false, func() broken {
		return handback(func(h *driver.Handback) *driver.Handback {
			without := *h
			without.Left = nil
			return &without
		})
	}},
	{"P6", "grants a dirty slot although a clean one is free", false, func() broken { return broken{acquire: dirtyFirst} }},
	{"P6", "ignores the quarantine", false, func() broken { return wanting(func(p *driver.Pool) { p.Quarantine = 0 }) }},
	{"P6", "forgets a slot that rests after a minute", false, func() broken {
		var left sync.Map // the time of the last release, by key
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if at, ok := left.Load(r.Key); ok && time.Since(at.(time.Time)) >= driver.PoolMemory {
				for i := range r.Slots {
					_ = d.(driver.PoolDriver).Heal(ctx, r.Key, i, "forgotten", driver.Holder{})
				}
			}
			return d.Acquire(ctx, r)
		}, release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			left.Store(g.Key, time.Now())
			return d.Release(ctx, g)
		}}
	}},
	{"P6", "grants a slot as clean after a force", false, func() broken { return takesForClean(driver.LeftForced) }},
	{"P6", "does not report until when a slot rests", false, func() broken {
		return broken{inspect: func(d driver.Driver, ctx context.Context, key string) (driver.State, error) {
			s, err := d.Inspect(ctx, key)
			for i := range s.Slots {
				s.Slots[i].Until = time.Time{}
			}
			return s, err
		}}
	}},
	{"P7", "ignores the slot that the process had last", false, func() broken { return wanting(func(p *driver.Pool) { p.Prefer = -1 }) }},
	{"P7", "ignores the slot to avoid", false, func() broken { return wanting(func(p *driver.Pool) { p.Avoid = -1 }) }},
	{"P8", "grants a withdrawn slot again", false, func() broken {
		return handback(func(h *driver.Handback) *driver.Handback {
			if h.Status == driver.SlotWithdrawn {
				return nil
			}
			return h
		})
	}},
	{"P8", "takes a busy pool for a withdrawn one", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if busy, ok := errors.AsType[*driver.NotAcquiredError](err); ok && r.Pool != nil {
				busy.Withdrawn = true
			}
			return g, err
		}}
	}},
	{"P8", "lists only keys that are held or waited for", false, func() broken {
		return broken{list: func(d driver.Driver, ctx context.Context, prefix string) ([]driver.State, error) {
			states, err := d.List(ctx, prefix)
			return slices.DeleteFunc(states, func(s driver.State) bool { return len(s.Holders)+len(s.Waiters) == 0 }), err
		}}
	}},
	{"P8", "does not heal", false, func() broken {
		return broken{heal: func(driver.Driver, context.Context, string, int, string, driver.Holder) error { return nil }}
	}},
	{"P8", "keeps the strikes of a healed slot", false, func() broken {
		var strikes sync.Map // of withdrawn slots, by key
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if n, ok := strikes.Load(r.Key); ok && g.Found != nil && g.Found.Left != nil && g.Found.Left.Why == driver.LeftHealed {
				g.Found = &driver.Found{Left: g.Found.Left, Note: g.Found.Note, Strikes: n.(int)}
			}
			return g, err
		}, release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			if g.Handback != nil && g.Handback.Status == driver.SlotWithdrawn {
				strikes.Store(g.Key, g.Handback.Strikes)
			}
			return d.Release(ctx, g)
		}}
	}},
	{"P8", "heals a slot by a force", false, func() broken {
		return broken{heal: func(d driver.Driver, ctx context.Context, key string, slot int, reason string, by driver.Holder) error {
			_, err := d.ForceRelease(ctx, key, driver.Force{BySlot: true, Slot: slot, Reason: reason, By: by})
			return errors.Join(err, d.(driver.PoolDriver).Heal(ctx, key, slot, reason, by))
		}}
	}},
	{"P8", "clears the strikes at a grant", false, func() broken { return found(func(f *driver.Found) { f.Strikes = 0 }) }},
	{"P9", "resizes a pool of a fixed size", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			r.Fixed = false
			return d.Acquire(ctx, r)
		}}
	}},
	{"P9", "grants a number that comes back as clean", false, func() broken { return takesForClean(driver.LeftShrunk) }},
	{"P10", "takes an unknown slot for clean", false, func() broken { return takesForClean(driver.LeftUnknown) }},
	{"P10", "never forgets an idle pool", false, func() broken {
		kept := new(sync.Map) // the slots that were handed back clean
		type slot struct {
			key    string
			number int
		}
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if g.Found != nil {
				if _, was := kept.LoadAndDelete(slot{g.Key, g.Slot}); was && g.Found.Left != nil && g.Found.Left.Why == driver.LeftUnknown {
					g.Found = &driver.Found{}
				}
			}
			return g, err
		}, release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
			if g.Handback != nil && g.Handback.Status == driver.SlotFree {
				kept.Store(slot{g.Key, g.Slot}, true)
			}
			return d.Release(ctx, g)
		}}
	}},
	{"P11", "serves waiters with the heartbeat only", false, lostPush(1)},
}

// found returns a driver that changes the record of a slot at its grant.
func found(change func(*driver.Found)) broken {
	return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
		g, err := d.Acquire(ctx, r)
		if g.Found != nil {
			changed := *g.Found
			change(&changed)
			g.Found = &changed
		}
		return g, err
	}}
}

// takesForClean returns a driver that grants a slot as clean that was left for
// the reason why.
func takesForClean(why string) broken {
	return found(func(f *driver.Found) {
		if f.Left != nil && f.Left.Why == why {
			f.Left = nil
		}
	})
}

// handback returns a driver that changes the handbacks.
func handback(change func(*driver.Handback) *driver.Handback) broken {
	return broken{release: func(d driver.Driver, ctx context.Context, g driver.Grant) error {
		if g.Handback != nil {
			g.Handback = change(g.Handback)
		}
		return d.Release(ctx, g)
	}}
}

// wanting returns a driver that changes the wishes of a request for a slot.
func wanting(change func(*driver.Pool)) broken {
	return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
		if r.Pool != nil {
			changed := *r.Pool
			change(&changed)
			r.Pool = &changed
		}
		return d.Acquire(ctx, r)
	}}
}

// dirtyFirst holds the clean slots while it makes the request.
func dirtyFirst(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
	s, err := d.Inspect(ctx, r.Key)
	is := func(status driver.SlotStatus) func(driver.SlotState) bool {
		return func(s driver.SlotState) bool { return s.Status == status }
	}
	if err != nil || r.Pool == nil || !slices.ContainsFunc(s.Slots, is(driver.SlotDirty)) {
		return d.Acquire(ctx, r)
	}
	for i, slot := range s.Slots {
		if !is(driver.SlotFree)(slot) {
			continue
		}
		other := r
		other.Token = fmt.Sprint(r.Token, "-", i)
		if g, err := d.Acquire(ctx, other); err == nil {
			g.Handback = &driver.Handback{Status: driver.SlotFree, Note: slot.Note, Strikes: slot.Strikes}
			defer func() { _ = d.Release(ctx, g) }()
		}
	}
	return d.Acquire(ctx, r)
}
