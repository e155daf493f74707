package boxes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/megaframework/mega/lock"
)

// Victim is a holder, as its killer sees it.
type Victim interface {
	// Kill ends the holder without a last word.
	Kill() error
	// Arrived returns the slot in which the holder has arrived at its point,
	// once for each arrival, or false if it has not.
	Arrived() (slot int, ok bool)
}

// process is a Victim that can be stopped.
type process interface {
	Victim
	PID() int
	Pause() error
	Continue() error
}

// Storm kills holders of a pool of boxes at every point of their work. Of ten
// holders one loses its slot by force before, and of 25 one is stopped until its
// lease has expired.
type Storm struct {
	Kills  int
	Size   int // of the pool
	TTL    time.Duration
	Locker *lock.Locker                    // sees the same pool
	Start  func(*testing.T, Orders) Victim // starts a holder; Orders.Serve is its work
	// Restart, if set, kills the backend and starts it again. Of eight kills one
	// is followed by it.
	Restart func() error
}

const key = "boxes"

// Run runs the storm, checks that each slot can be used after it, and judges the
// log.
func (s Storm) Run(t *testing.T) {
	t.Helper()
	r := &run{Storm: s, t: t, dir: t.TempDir()}
	r.rage()
	r.sweep()
	figures, err := Judge(r.dir)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d kills: %v", r.killed, figures)
}

type run struct {
	Storm
	t       *testing.T
	dir     string
	alive   []*victim
	stopped []*victim
	started int
	killed  int
}

type victim struct {
	Victim
	point Point
	slot  int
	loses string    // what happens to it before it is killed
	since time.Time // of its stop
}

const (
	byForce = "force"
	byStop  = "stop"
)

// rage starts all holders and kills them.
func (r *run) rage() {
	r.t.Helper()
	for r.started < r.Kills || len(r.alive)+len(r.stopped) > 0 {
		for len(r.alive) < r.Size+2 && r.started < r.Kills { // a few have to wait
			r.start()
		}
		r.wake()
		r.strike()
	}
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// persist calls f until the backend answers: it may have been restarted, or have
// no processor.
func (r *run) persist(f func() error) {
	r.t.Helper()
	err := f()
	for end := time.Now().Add(patience); errors.Is(err, lock.ErrUnavailable) && time.Now().Before(end); {
		err = f()
	}
	r.must(err)
}

func (r *run) start() {
	r.t.Helper()
	v := &victim{point: []Point{Working, "", Preparing, "", Cleaning, "", Leaving, ""}[r.started%8]}
	switch {
	case r.started%25 == 7:
		v.point, v.loses = Working, byStop
	case r.started%10 == 4:
		v.point, v.loses = Working, byForce
	}
	r.started++
	v.Victim = r.Start(r.t, Orders{
		Name: fmt.Sprint("holder", r.started), Dir: r.dir, Key: key, Size: r.Size, TTL: r.TTL, Point: v.point,
	})
	r.alive = append(r.alive, v)
}

// strike waits for a holder that has arrived at its point, and does to it what is
// due.
func (r *run) strike() {
	r.t.Helper()
	v := r.arrived()
	if v == nil {
		return
	}
	p, isProcess := v.Victim.(process)
	switch {
	case v.loses == byForce:
		r.persist(func() error {
			_, err := r.Locker.ForceRelease(r.t.Context(), key, "the storm", lock.OnlySlot(v.slot))
			return err
		})
	case v.loses == byStop && isProcess:
		r.must(p.Pause())
		v.since = time.Now()
		r.alive = slices.DeleteFunc(r.alive, func(o *victim) bool { return o == v })
		r.stopped = append(r.stopped, v)
	default:
		if v.point == "" {
			time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond) // any moment will do
		}
		r.must(v.Kill())
		r.killed++
		if r.Restart != nil && r.killed%8 == 4 {
			r.must(r.Restart())
		}
		r.alive = slices.DeleteFunc(r.alive, func(o *victim) bool { return o == v })
	}
	v.loses = ""
}

// arrived returns a holder that is at its point, or nil if one that is stopped
// has to be looked at.
func (r *run) arrived() *victim {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, v := range r.alive {
			if slot, ok := v.Arrived(); ok {
				v.slot = slot
				return v
			}
		}
		if len(r.stopped) > 0 && time.Until(end) < patience-20*time.Millisecond {
			return nil
		}
	}
	state, err := r.Locker.Inspect(r.t.Context(), key)
	r.t.Fatalf("of %d holders none has arrived at its point: %+v, %v", len(r.alive), state, err)
	return nil
}

// wake continues the stopped holders that have lost their slots.
func (r *run) wake() {
	r.t.Helper()
	if len(r.stopped) == 0 {
		return
	}
	state, err := r.Locker.Inspect(r.t.Context(), key)
	if err != nil {
		return // the backend has just been restarted
	}
	r.stopped = slices.DeleteFunc(r.stopped, func(v *victim) bool {
		p := v.Victim.(process)
		// A hub that has just begun does not know the lease of a stopped holder.
		if time.Since(v.since) < r.TTL || slices.ContainsFunc(state.Holders, func(h lock.Holding) bool { return h.Slot == v.slot && h.PID == p.PID() }) {
			return false
		}
		r.must(p.Continue())
		r.alive = append(r.alive, v)
		return true
	})
}

// sweep takes every slot at once, and hands it back clean.
func (r *run) sweep() {
	r.t.Helper()
	life, end, err := os.Pipe()
	r.must(err)
	defer func() { _ = life.Close() }()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var holders []*Holder
	var slots []*lock.Slot
	for i := range r.Size {
		h, err := Open(r.dir, fmt.Sprint("sweeper", i), life)
		r.must(err)
		r.persist(func() error {
			s, err := r.Locker.AcquireSlot(ctx, h.Pool(key, r.Size), lock.TTL(time.Minute), lock.Wait(lock.Forever))
			slots = append(slots, s)
			return err
		})
		holders = append(holders, h)
	}
	for _, s := range slots {
		if s != nil {
			r.persist(s.Release) // what has no answer is done in the background
		}
	}
	r.must(end.Close())
	for _, h := range holders {
		r.must(h.Close())
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		state, err := r.Locker.Inspect(r.t.Context(), key)
		switch {
		case err == nil && len(state.Holders)+len(state.Waiters) == 0 && state.Free() == r.Size:
			return
		case time.Now().After(end):
			r.t.Errorf("after the storm: %+v, %v", state, err)
			return
		}
	}
}
