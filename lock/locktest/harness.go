package locktest

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Harness says how the suite reaches the driver under test. Open alone is
// required.
type Harness struct {
	// Open opens the driver as one more process on the same backend: what is
	// opened twice meets there, and shares nothing else. Each is closed by the
	// suite. For a driver of scope Process, [Share] makes processes of one
	// driver value.
	Open func() (driver.Driver, error)

	// Begin, if set, is called before each case, under FakeTime inside its
	// bubble. What it makes ready, such as an empty backend, is what Open
	// opens from then on.
	Begin func() error

	// FakeTime says that the driver's time is that of package time alone, so
	// that it can run in a bubble of testing/synctest. Run gives each case a
	// bubble of its own; Check runs in its caller's.
	FakeTime bool

	// Unit is what the durations of the cases are counted in; a lease lasts
	// between one and a few units. Short ones make the run quick, long ones
	// forgiving. At least lock.MinTTL; default 300ms, or 1s on fake time.
	Unit time.Duration

	// Repair is the interval of the driver's heartbeat, which repairs a lost
	// push. Default 600ms.
	Repair time.Duration

	// Faults is what can be done to the backend and to the way there. Cases
	// that need a fault which does not exist are not registered, and the run
	// lists them.
	Faults Faults

	// Background names functions (as in "net/http.(*Server).Serve") whose
	// goroutines belong to the harness and may outlive a case.
	Background []string

	witness *witness // of the case, where a test runs it
}

// Faults is what a harness can do to its driver; nil is what does not exist
// there. Each returns when the fault is in effect.
//
// Those that take a driver concern one process: they are given what Open
// returned. The suite undoes every fault that has an undo before it closes the
// process, and every process is closed before the next case begins.
type Faults struct {
	// Kill ends the backend as kill -9 does, and Restart brings it back, with
	// the data that its persistence has kept (see Keeps).
	Kill, Restart func() error
	// Keeps says that the data survives Kill and Restart.
	Keeps bool
	// Flush makes the backend forget everything, under its clients' feet.
	Flush func() error
	// Stop and Continue halt the backend as SIGSTOP and SIGCONT do.
	Stop, Continue func() error
	// Refuse makes the backend full: it answers every write that may need
	// memory with an error, and serves reads, until undone.
	Refuse func() (undo func() error, err error)
	// ForgetScripts makes the backend forget what it has cached for its
	// clients.
	ForgetScripts func() error
	// BreakPush breaks whatever wakes waiters up, once; what was on its way is
	// lost.
	BreakPush func() error
	// Leave ends the backend in order, as a rolling restart does, and returns
	// when its successor serves. Calls may be under way.
	Leave func() error
	// StepClock sets the wall clock of the backend forward or back, until
	// undone.
	StepClock func(by time.Duration) (undo func() error, err error)
	// Delete removes the holders of key behind the driver's back, and leaves
	// the queue.
	Delete func(key string) error
	// Corrupt puts something of the wrong kind where the driver keeps key.
	Corrupt func(key string) error
	// Foreign puts a value of another program, of the kind that a lease has,
	// where the driver keeps key.
	Foreign func(key string) error

	// DropReply lets the next op of the process be executed and loses the
	// reply, as a connection that breaks in that moment does.
	DropReply func(d driver.Driver, op Op) error
	// Delay holds back the reply to the next op of the process for so long.
	Delay func(d driver.Driver, op Op, by time.Duration) error
	// Duplicate lets the next op of the process arrive a second time, by so
	// much later, whatever has happened in between.
	Duplicate func(d driver.Driver, op Op, by time.Duration) error
	// Partition drops what the process sends and what is sent to it, silently,
	// until undone.
	Partition func(d driver.Driver) (undo func() error, err error)
	// Deafen drops only what is sent to the process; its requests arrive.
	Deafen func(d driver.Driver) (undo func() error, err error)
	// Crash cuts the process off for good, as kill -9 does: the backend sees
	// its connections close, and it says no farewell.
	Crash func(d driver.Driver) error

	// Connections counts the connections that the process has to the backend.
	Connections func(d driver.Driver) (int, error)
	// Commands counts what the backend has been asked to do so far, by all.
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

// info opens the driver once to ask what it is.
func (h Harness) info() (driver.Info, error) {
	if err := h.Begin(); err != nil {
		return driver.Info{}, fmt.Errorf("begin: %w", err)
	}
	d, err := h.Open()
	if err != nil {
		return driver.Info{}, fmt.Errorf("open: %w", err)
	}
	info := d.Info()
	if err := closeBounded(d); err != nil {
		return info, fmt.Errorf("close %s: %w", info.Name, err)
	}
	return info, nil
}
