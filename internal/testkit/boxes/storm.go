package boxes

import (
	"context"
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
}

const key = "boxes"

// Run runs the storm, checks that each slot can be used after it, and judges the
// log.
func (s Storm) Run(t *testing.T) Figures {
	t.Helper()
	r := &run{Storm: s, t: t, dir: t.TempDir()}
	r.rage()
	r.sweep()
	figures, err := Judge(r.dir)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d kills: %v", r.killed, figures)
	return figures
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
	loses string // what happens to it before it is killed
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
		_, err := r.Locker.ForceRelease(r.t.Context(), key, "the storm", lock.OnlySlot(v.slot))
		r.must(err)
	case v.loses == byStop && isProcess:
		r.must(p.Pause())
		r.alive = slices.DeleteFunc(r.alive, func(o *victim) bool { return o == v })
		r.stopped = append(r.stopped, v)
	default:
		if v.point == "" {
			time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond) // any moment will do
		}
		r.must(v.Kill())
		r.killed++
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
	r.t.Fatalf("of %d holders none has arrived at its point", len(r.alive))
	return nil
}

// wake continues the stopped holders that have lost their slots.
func (r *run) wake() {
	r.t.Helper()
	if len(r.stopped) == 0 {
		return
	}
	state, err := r.Locker.Inspect(r.t.Context(), key)
	r.must(err)
	r.stopped = slices.DeleteFunc(r.stopped, func(v *victim) bool {
		p := v.Victim.(process)
		if slices.ContainsFunc(state.Holders, func(h lock.Holding) bool { return h.Slot == v.slot && h.PID == p.PID() }) {
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
	defer life.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var holders []*Holder
	var slots []*lock.Slot
	for i := range r.Size {
		h, err := Open(r.dir, fmt.Sprint("sweeper", i), life)
		r.must(err)
		s, err := r.Locker.AcquireSlot(ctx, h.Pool(key, r.Size), lock.TTL(time.Minute), lock.Wait(lock.Forever))
		r.must(err)
		holders, slots = append(holders, h), append(slots, s)
	}
	for _, s := range slots {
		r.must(s.Release())
	}
	r.must(end.Close())
	for _, h := range holders {
		r.must(h.Close())
	}
	state, err := r.Locker.Inspect(r.t.Context(), key)
	r.must(err)
	if len(state.Holders)+len(state.Waiters) > 0 || state.Free() != r.Size {
		r.t.Errorf("after the storm: %+v", state)
	}
}
