package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// DemoKey is the lock of the page of locks.
const DemoKey = "demo"

const (
	// demoTTL is the time that others wait if a holder is frozen. It is shorter
	// than the default, so that an observer does not wait long.
	demoTTL = 2 * time.Second
	// Extension is the time by which a holder is extended.
	Extension = 10 * time.Second
)

// LockDemo holds the demo lock and carries out the orders of the page to its holder.
type LockDemo struct {
	trail *store.Trail

	mu   sync.Mutex                // guards held
	held map[uint64]chan HoldOrder // orders to the holders of this process, by fence
}

// NewLockDemo returns a LockDemo that records on a trail.
func NewLockDemo(t *store.Trail) *LockDemo {
	return &LockDemo{trail: t, held: map[uint64]chan HoldOrder{}}
}

// HoldOrder orders a holder to do something, in whichever process it is.
type HoldOrder struct {
	Fence uint64 `json:"fence"`
	Do    string `json:"do"`
}

// HoldOrders is the topic of HoldOrder.
const HoldOrders = bus.Topic[HoldOrder]("demo.order")

// The orders to a holder.
const (
	DoExtend  = "extend"
	DoRelease = "release"
	DoKill    = "kill"   // end the process, as kill -9
	DoFreeze  = "freeze" // stop the process, as SIGSTOP, and write when it continues
)

// The steps of a trail.
const (
	stepAcquired = "acquired"
	stepWrote    = "wrote"
	stepExtended = "extended"
	stepReleased = "released"
	stepLost     = "lost"
	stepFailed   = "failed"
	stepRefused  = "refused" // a write
	stepKilled   = "killed"
	stepFrozen   = "frozen"
	stepNext     = "next" // the time until the next holder
	stepResumed  = "resumed"
)

// Hold holds the demo lock in the background for a while, or waits for it.
func (d *LockDemo) Hold(ctx *mega.Ctx, span time.Duration, label string) {
	asked := time.Now()
	var fence uint64
	ctx.Go("hold the demo lock", func(ctx *mega.Ctx) error {
		err := ctx.Lock.With(DemoKey, func(ctx *mega.Ctx) error {
			lease, ok := ctx.Lease()
			if !ok {
				return lock.ErrNoLease
			}
			fence = lease.Fence()
			return d.inside(ctx, lease, asked, span)
		}, lock.Label(label), lock.Wait(JobWait), lock.TTL(demoTTL))
		switch {
		case errors.Is(err, lock.ErrLost):
			return d.addLast(ctx, store.Step{What: stepLost, Fence: fence, Text: reasonOf(err)})
		case err != nil:
			return errors.Join(err, d.addLast(ctx, store.Step{What: stepFailed, Fence: fence, Text: reasonOf(err)}))
		}
		return nil
	})
}

// addLast records a step of a holder that may have lost its lease.
func (d *LockDemo) addLast(ctx context.Context, s store.Step) error {
	return d.trail.Add(context.WithoutCancel(ctx), s)
}

// inside is the work of a holder: it writes, waits for orders, and writes again.
func (d *LockDemo) inside(ctx *mega.Ctx, lease *lock.Lease, asked time.Time, span time.Duration) error {
	orders, leave := d.enter(lease.Fence())
	defer leave()
	if err := d.trail.Add(ctx, store.Step{What: stepAcquired, Fence: lease.Fence(), Millis: millis(time.Since(asked))}); err != nil {
		return err
	}
	wrote := store.Step{What: stepWrote, Fence: lease.Fence()}
	if err := d.trail.Write(ctx, wrote); err != nil {
		return err
	}
	end := time.Now().Add(span)
	for {
		select {
		case <-time.After(time.Until(end)):
			return d.trail.Write(ctx, wrote)
		case <-ctx.Done():
			return context.Cause(ctx)
		case do := <-orders:
			if done, err := d.obey(ctx, lease, do); done || err != nil {
				return err
			}
			end = end.Add(Extension)
		}
	}
}

// enter accepts orders for the holder with a fence, until leave is called.
func (d *LockDemo) enter(fence uint64) (orders chan HoldOrder, leave func()) {
	orders = make(chan HoldOrder, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[fence] = orders
	return orders, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.held, fence)
	}
}

// OnOrder passes an order to its holder, if it is in this process. An order that
// finds another one waiting is dropped.
func (d *LockDemo) OnOrder(_ *mega.Ctx, o HoldOrder) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case d.held[o.Fence] <- o: // a nil channel is never ready
	default:
	}
	return nil
}

// obey carries out an order, and reports whether the holder is done.
func (d *LockDemo) obey(ctx *mega.Ctx, lease *lock.Lease, o HoldOrder) (done bool, err error) {
	step := store.Step{Fence: lease.Fence()}
	switch o.Do {
	case DoRelease:
		step.What = stepReleased
		return true, d.trail.Add(ctx, step)
	case DoExtend:
		step.What, step.Text = stepExtended, Extension.String()
		if err := lease.Extend(ctx, Extension); err != nil {
			return false, err
		}
		return false, d.trail.Add(ctx, step)
	}
	if !mayStrike(ctx) {
		return false, errNotHere
	}
	if o.Do == DoKill {
		return true, killSelf()
	}
	step.What = stepFrozen
	if err := d.trail.Add(ctx, step); err != nil {
		return true, err
	}
	began := time.Now()
	err = d.trail.WriteLate(ctx, store.Step{What: stepWrote, Fence: lease.Fence()}, freezeSelf)
	if errors.Is(err, lock.ErrStale) || errors.Is(err, lock.ErrLost) {
		return true, d.addLast(ctx, store.Step{What: stepRefused, Fence: lease.Fence(), Millis: millis(time.Since(began)), Text: reasonOf(err)})
	}
	return true, err
}

// reasonOf returns the code of an error, with the cause of a lost lease.
func reasonOf(err error) string {
	var lost *lock.LostError
	var coded interface{ Code() string }
	switch {
	case errors.As(err, &lost):
		return fmt.Sprintf("%s: %s", lost.Code(), cmp.Or(lost.Reason, string(lost.Cause)))
	case errors.As(err, &coded):
		return coded.Code()
	}
	return err.Error()
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Strikes is the topic of Strike.
const Strikes = bus.Topic[Strike]("demo.strike")

// Strike asks the processes beside the holder's to have the holder killed or
// frozen, and to measure the time until the next holder.
type Strike struct {
	Fence uint64 `json:"fence"`
	Host  string `json:"host"`
	PID   int    `json:"pid"` // on the host
	Do    string `json:"do"`
}

// strikeKey is the lock of the process that carries out a strike.
const strikeKey = "demo-strike"

// maxStrike bounds the time of a strike, and with it the time of a frozen process.
const maxStrike = 20 * time.Second

var errNotHere = mega.Error(http.StatusForbidden, "demo.only_in_dev", "locks.only_in_dev")

// mayStrike reports whether processes are killed and frozen here.
func mayStrike(ctx *mega.Ctx) bool { return ctx.App.Env == "dev" }

// OnStrike carries out a strike, unless another process does, or the holder is
// this process or on another host.
func (d *LockDemo) OnStrike(ctx *mega.Ctx, s Strike) error {
	host, err := os.Hostname()
	if err != nil || s.Host != host || s.PID == os.Getpid() || !mayStrike(ctx) {
		return err
	}
	ctx.Go("strike the holder", func(ctx *mega.Ctx) error {
		ctx, cancel := ctx.WithTimeout(maxStrike)
		defer cancel()
		lease, err := ctx.Lock.TryAcquire(strikeKey)
		if errors.Is(err, lock.ErrNotAcquired) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _ = lease.Release() }()
		return d.strike(ctx, s)
	})
	return nil
}

func (d *LockDemo) strike(ctx *mega.Ctx, s Strike) error {
	state, err := ctx.Lock.Inspect(DemoKey)
	if err != nil || !holds(state, s.Fence) {
		return err // another process was faster
	}
	d.Hold(ctx, time.Second, "next holder")
	state, err = watch(ctx, 5*time.Millisecond, func(st lock.State) bool { return len(st.Waiters) > 0 || !holds(st, s.Fence) })
	if err != nil || !holds(state, s.Fence) {
		return err // it has ended by itself
	}
	if s.Do == DoFreeze {
		defer resume(s.PID) // also if this fails
	} else if err := d.trail.Add(ctx, store.Step{What: stepKilled, Fence: s.Fence, Text: strconv.Itoa(s.PID)}); err != nil {
		return err
	}
	began := time.Now()
	if err := mega.Publish(ctx, HoldOrders, HoldOrder{s.Fence, s.Do}); err != nil {
		return err
	}
	next, err := watch(ctx, time.Millisecond, func(st lock.State) bool { return len(st.Holders) > 0 && st.Holders[0].Fence > s.Fence })
	if err != nil {
		return err
	}
	took := time.Since(began)
	holder := next.Holders[0]
	if err := d.trail.Add(ctx, store.Step{What: stepNext, Fence: holder.Fence, Millis: millis(took), Text: s.Do}); err != nil {
		return err
	}
	if s.Do == DoKill {
		return nil
	}
	if err := d.awaitWrite(ctx, holder.Fence); err != nil {
		return err
	}
	return d.trail.Add(ctx, store.Step{What: stepResumed, Fence: s.Fence})
}

// holds reports whether the holder with a fence has the demo lock.
func holds(st lock.State, fence uint64) bool {
	return len(st.Holders) > 0 && st.Holders[0].Fence == fence
}

// watch returns the state of the demo lock as soon as it is as wanted.
func watch(ctx *mega.Ctx, every time.Duration, wanted func(lock.State) bool) (lock.State, error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		state, err := ctx.Lock.Inspect(DemoKey)
		if err != nil || wanted(state) {
			return state, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return state, context.Cause(ctx)
		}
	}
}

// awaitWrite waits until the holder with a fence has written: from then on the
// database refuses earlier holders.
func (d *LockDemo) awaitWrite(ctx *mega.Ctx, fence uint64) error {
	for {
		steps, err := d.trail.Newest(ctx)
		if err != nil {
			return err
		}
		for _, s := range steps {
			if s.What == stepWrote && s.Fence >= fence {
				return nil
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
