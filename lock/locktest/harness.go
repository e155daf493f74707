package locktest

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Harness connects the suite to the driver under test. Only Open is required.
type Harness struct {
	// Open opens the driver as another process on the same backend. Two opened
	// drivers share the backend and nothing else. The suite closes each of
	// them. For a driver of scope Process, [Share] makes several processes from
	// one driver value.
	Open func() (driver.Driver, error)

	// Begin, if set, is called before each case, under FakeTime inside the
	// case's bubble. It prepares the backend, such as an empty one, that the
	// following calls of Open use.
	Begin func() error

	// FakeTime means that the driver uses only the clock of package time, so
	// that it can run in a bubble of testing/synctest. Run creates a bubble for
	// each case; Check runs in the bubble of its caller.
	FakeTime bool

	// Unit is the unit of the durations in the cases; a lease lasts between one
	// and a few units. A short unit makes the run faster, a long one tolerates
	// a slow machine. At least lock.MinTTL; default 300ms, or 1s on fake time.
	Unit time.Duration

	// Repair is the interval of the driver's heartbeat, which repairs a lost
	// push. Default 600ms.
	Repair time.Duration

	// Faults are the faults that the harness can cause in the backend and in
	// the network. Cases that need a missing fault do not run, and the run
	// lists them.
	Faults Faults

	// Background names functions (as in "net/http.(*Server).Serve") whose
	// goroutines belong to the harness and may outlive a case.
	Background []string
}

// Faults holds the faults that a harness can cause; nil means that the harness
// does not support one. Each function returns when the fault is in effect.
//
// Functions with a driver argument affect one process: the argument is a result
// of Open. The suite undoes every fault that has an undo before it closes the
// process, and closes every process before the next case begins.
type Faults struct {
	// Kill ends the backend as kill -9 does, and Restart starts it again, with
	// its persistent data (see Keeps).
	Kill, Restart func() error
	// Keeps means that the data survives Kill and Restart.
	Keeps bool
	// Flush deletes all data of the backend while its clients are connected.
	Flush func() error
	// Stop and Continue halt the backend as SIGSTOP and SIGCONT do.
	Stop, Continue func() error
	// Refuse makes the backend full: it answers every write that may need
	// memory with an error, and serves reads, until undone.
	Refuse func() (undo func() error, err error)
	// Lose restarts the backend without its data, as after a failover to an empty
	// replica: the connections of its clients break, and come back.
	Lose func() error
	// Deny makes the backend refuse the calls of its clients for want of a
	// permission, until undone.
	Deny func() (undo func() error, err error)
	// Forbid makes the backend refuse one of the Permissions that its clients need,
	// until undone.
	Forbid      func(permission string) (undo func() error, err error)
	Permissions []string
	// Newer makes the backend, or its data of key, one of a version that does not
	// work with this one. It returns a call that meets that version, and what names
	// each of the two versions.
	Newer func(key string) (call func() error, versions [2]string, err error)
	// Beside makes the backend one of the next version, which works with this one.
	Beside func() error
	// ForgetScripts clears the scripts that the backend has cached for its
	// clients.
	ForgetScripts func() error
	// BreakPush interrupts the push channel that wakes waiters, once; messages
	// in flight are lost.
	BreakPush func() error
	// Leave shuts the backend down in order, as a rolling restart does, and
	// returns when its successor serves. Calls may be in flight.
	Leave func() error
	// StepClock sets the wall clock of the backend forward or back, until
	// undone.
	StepClock func(by time.Duration) (undo func() error, err error)
	// Delete removes the holders of key without the driver, and leaves the
	// queue.
	Delete func(key string) error
	// Corrupt replaces the driver's data of key by data of a wrong type.
	Corrupt func(key string) error
	// Foreign replaces the driver's data of key by a value of another program
	// that has the type of a lease.
	Foreign func(key string) error

	// DropReply lets the backend execute the next op of the process and drops
	// the reply, as when the connection breaks at that moment.
	DropReply func(d driver.Driver, op Op) error
	// Delay delays the reply to the next op of the process by the given time.
	Delay func(d driver.Driver, op Op, by time.Duration) error
	// Duplicate makes the next op of the process arrive a second time, later by
	// the given time, regardless of the events in between.
	Duplicate func(d driver.Driver, op Op, by time.Duration) error
	// Partition silently drops all data from and to the process, until undone.
	Partition func(d driver.Driver) (undo func() error, err error)
	// Deafen drops only the data to the process; its requests arrive.
	Deafen func(d driver.Driver) (undo func() error, err error)
	// Crash cuts the process off permanently, as kill -9 does: its connections
	// close without a last message.
	Crash func(d driver.Driver) error

	// Connections returns the number of connections from the process to the
	// backend.
	Connections func(d driver.Driver) (int, error)
	// Commands returns the number of commands that the backend has received so
	// far from all processes.
	Commands func() (int, error)
}

// fault is the name of a field of Faults.
type fault string

func (f Faults) has(name fault) bool {
	return !reflect.ValueOf(f).FieldByName(string(name)).IsZero()
}

func (h Harness) withDefaults() (Harness, error) {
	if h.Open == nil {
		return h, fmt.Errorf("locktest: Harness.Open is required")
	}
	if h.FakeTime {
		h.Unit = cmp.Or(h.Unit, time.Second)
	}
	h.Unit = cmp.Or(h.Unit, 300*time.Millisecond)
	h.Repair = cmp.Or(h.Repair, 600*time.Millisecond)
	if h.Begin == nil {
		h.Begin = func() error { return nil }
	}
	return h, nil
}

// info opens the driver once to get its Info. A driver that does not implement
// driver.PoolDriver lacks the rules of pools whose slots have states, and one
// that does not implement driver.Runner lacks the first rule of runs.
func (h Harness) info() (driver.Info, error) {
	if err := h.Begin(); err != nil {
		return driver.Info{}, fmt.Errorf("begin: %w", err)
	}
	d, err := h.Open()
	if err != nil {
		return driver.Info{}, fmt.Errorf("open: %w", err)
	}
	info := withRuns(d)
	if _, ok := d.(driver.PoolDriver); !ok {
		for _, r := range rules {
			if strings.HasPrefix(r.ID, "P") {
				info.Lacks = append(info.Lacks, driver.Lack{Rule: r.ID, Why: "the driver does not implement PoolDriver"})
			}
		}
	}
	if err := closeBounded(d); err != nil {
		return info, fmt.Errorf("close %s: %w", info.Name, err)
	}
	return info, nil
}
