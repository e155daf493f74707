package locktest

import (
	"fmt"
	"slices"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// pool is a pool whose slots have states, as one process sees it.
type pool struct {
	*env
	driver.Driver
	name string
	size int
}

// pool opens a process with a pool of n.
func (e *env) pool(n int) *pool { return &pool{e, e.driver(), e.key("pool"), n} }

// member is the same pool, seen by another process.
func (p *pool) member() *pool { return &pool{p.env, p.driver(), p.name, p.size} }

// eachSlot runs f for a pool in which only slot 0 can be granted, and for one in
// which only slot 1 can: a backend may keep slot 0 elsewhere.
func (e *env) eachSlot(f func(p *pool, slot int)) {
	for slot := range 2 {
		p := &pool{e, e.driver(), e.key(fmt.Sprintf("pool-%d", slot)), slot + 1}
		for i := range slot {
			e.Want(p.take().Slot == i, "the first slots are not granted first")
		}
		f(p, slot)
	}
}

// change is a change of a request for a slot.
type change = func(*driver.Request)

func resting(d time.Duration) change  { return func(r *driver.Request) { r.Pool.Quarantine = d } }
func preferring(slot int) change      { return func(r *driver.Request) { r.Pool.Prefer = slot } }
func avoidingFirst(r *driver.Request) { r.Pool.Avoid = 0 }
func labelled(label string) change    { return func(r *driver.Request) { r.Holder.Label = label } }
func fixed(r *driver.Request)         { r.Fixed = true }
func waiting(r *driver.Request)       { r.Wait = -1 }

// dying is for a lease that nobody renews.
func dying(ttl time.Duration) change {
	return func(r *driver.Request) { r.TTL, r.NoRenew = ttl, true }
}

func (p *pool) seat(changes ...change) driver.Request {
	r := p.longRequest(p.name)
	r.Slots, r.Pool = p.size, &driver.Pool{Prefer: -1, Avoid: -1}
	for _, f := range changes {
		f(&r)
	}
	return r
}

// take acquires a slot.
func (p *pool) take(changes ...change) driver.Grant {
	g := p.grant(p, p.seat(changes...))
	p.Want(g.Found != nil, "the grant of slot %d has no record", g.Slot)
	return g
}

// refused returns the error of a request that does not wait.
func (p *pool) refused(changes ...change) error {
	ctx, cancel := p.Bounded()
	defer cancel()
	g, err := p.Acquire(ctx, p.seat(changes...))
	p.Want(err != nil, "slot %d was granted", g.Slot)
	return err
}

func (p *pool) busy(changes ...change) {
	p.Is(p.refused(changes...), driver.ErrNotAcquired, "a request for a slot")
}

// The ways to release a slot. Without a handback it is left dirty.
var (
	clean    = &driver.Handback{Status: driver.SlotFree}
	withdraw = &driver.Handback{Status: driver.SlotWithdrawn, Reason: "the disk is full"}
)

// give releases a slot with a handback.
func (p *pool) give(g driver.Grant, h *driver.Handback) {
	g.Handback = h
	p.Must(p.release(p, g), "release slot %d", g.Slot)
}

// cleaned has every slot handed back clean.
func (p *pool) cleaned() *pool {
	var all []driver.Grant
	for range p.size {
		all = append(all, p.take())
	}
	for _, g := range all {
		p.give(g, clean)
	}
	return p
}

// finds fails the case unless g is the slot, left for the reason; none means that
// the slot is clean.
func (p *pool) finds(g driver.Grant, slot int, why string) {
	got := ""
	if g.Found.Left != nil {
		got = g.Found.Left.Why
	}
	p.Want(g.Slot == slot && got == why, "got slot %d left %q, want slot %d left %q", g.Slot, got, slot, why)
}

// bothWays runs f twice: alone, and after the release of a token that the backend
// does not know. A backend remembers such a token for a while, and may have a
// shorter way where it has nothing to remember.
func (p *pool) bothWays(f func(way string)) {
	f("alone")
	r := p.seat()
	stray := driver.Grant{Key: r.Key, Token: r.Token, TTL: r.TTL}
	p.Is(p.release(p, stray), driver.ErrLost, "the release of an unknown token")
	f("beside an unknown token")
}

// state returns the state of a slot.
func (p *pool) state(number int) driver.SlotState {
	s := p.inspect(p, p.name)
	i := slices.IndexFunc(s.Slots, func(s driver.SlotState) bool { return s.Number == number })
	p.Want(i >= 0, "slot %d is not in %+v", number, s.Slots)
	return s.Slots[i]
}

// listed returns the number of slots by status as List has them, and fails the
// case unless the pool is listed.
func (p *pool) listed() driver.Tally {
	ctx, cancel := p.Bounded()
	defer cancel()
	all, err := p.List(ctx, p.name)
	p.Must(err, "list")
	p.Want(len(all) == 1 && all[0].Key == p.name, "listed %+v, want only the pool", all)
	return all[0].Tally()
}

func (p *pool) is(slot int, status driver.SlotStatus, reason string) {
	s := p.state(slot)
	p.Want(s.Status == status && s.Reason == reason, "slot %d is %+v, want %s, %q", slot, s, status, reason)
}

// operator returns the part of the driver that operators use.
func (p *pool) operator() driver.PoolDriver {
	d, ok := p.Driver.(driver.PoolDriver)
	p.Want(ok, "the driver has no pools whose slots have states")
	return d
}

func (p *pool) heal(slot int) {
	ctx, cancel := p.Bounded()
	defer cancel()
	p.Must(p.operator().Heal(ctx, p.name, slot, "repaired", driver.Holder{Host: "ops"}), "heal slot %d", slot)
}

// seated is a request that waits for a slot.
type seated struct {
	*pool
	g    driver.Grant
	err  error
	when time.Time
	done <-chan struct{}
}

// wait queues a request and returns when the backend has it.
func (p *pool) wait(changes ...change) *seated {
	r := p.seat(append(changes, waiting)...)
	before := len(p.inspect(p, p.name).Waiters)
	s := &seated{pool: p}
	s.done = p.Async(func() {
		s.g, s.err = p.Acquire(p.Ctx, r)
		s.when = time.Now()
	})
	p.Soon("the request is queued", func() bool { return len(p.inspect(p, p.name).Waiters) > before })
	return s
}

// gets returns the grant.
func (s *seated) gets() driver.Grant {
	s.Await(s.done, "the waiter")
	s.Must(s.err, "wait for a slot")
	return s.g
}

// punctual fails the case unless all waiters were served within 50 ms. On real
// time a busy machine adds to some: there most of them must be served long before
// the heartbeat that repairs a lost push.
func (e *env) punctual(late []time.Duration) {
	slices.Sort(late)
	if e.h.FakeTime {
		e.Want(late[len(late)-1] <= 50*time.Millisecond, "the waiters were late by %v", late)
		return
	}
	e.Want(late[len(late)/2] < e.h.Repair/4, "the waiters were late by %v", late)
}
