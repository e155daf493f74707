package limittest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
)

// Harness connects the suite to the driver under test. Only Open is required.
type Harness struct {
	// Open opens the driver as another process on the same backend. Two opened
	// drivers share the backend and nothing else. The suite closes each of them.
	// For a driver of scope Process, [Share] makes several processes from one
	// driver value.
	Open func() (driver.Driver, error)

	// Begin, if set, is called before each case, under FakeTime inside the
	// case's bubble. It prepares the backend that the following calls of Open
	// use.
	Begin func() error

	// FakeTime means that the driver uses only the clock of package time, so
	// that it can run in a bubble of testing/synctest. Run creates a bubble for
	// each case; Check runs in the bubble of its caller.
	FakeTime bool

	// Unit is the unit of the durations in the cases: a window lasts about a
	// unit. A short unit makes the run faster, a long one tolerates a slow
	// machine. Default 300ms, or 1s on fake time.
	Unit time.Duration

	// Locker returns a Locker for the slots of Concurrent, which the suite
	// closes. Without it, W16 is not tested.
	Locker func() (*lock.Locker, error)

	// Faults are the faults that the harness can cause. Cases that need a
	// missing fault do not run, and the run lists them.
	Faults Faults

	// Background names functions (as in "net/http.(*Server).Serve") whose
	// goroutines belong to the harness and may outlive a case.
	Background []string
}

// Faults holds the faults that a harness can cause; nil means that the harness
// does not support one. Each function returns when the fault is in effect. A
// driver argument is a result of Open: the fault affects its process alone.
type Faults struct {
	// StepClock sets the clock of the backend forward or back, until undone.
	StepClock func(by time.Duration) (undo func() error, err error)
	// DropReply lets the backend execute the next Take of the process and drops
	// the reply, as when the connection breaks at that moment.
	DropReply func(d driver.Driver) error
	// Stop and Continue halt the backend as SIGSTOP and SIGCONT do.
	Stop, Continue func() error
	// Restart ends the backend as kill -9 does, and starts it again with the
	// data that it had acknowledged.
	Restart func() error
	// Crash cuts the process off permanently, as kill -9 does.
	Crash func(d driver.Driver) error
}

// fault is the name of a field of Faults.
type fault string

func (f Faults) has(name fault) bool {
	return !reflect.ValueOf(f).FieldByName(string(name)).IsZero()
}

func (h Harness) withDefaults() (Harness, error) {
	if h.Open == nil {
		return h, errors.New("limittest: Harness.Open is required")
	}
	if h.FakeTime {
		h.Unit = cmp.Or(h.Unit, time.Second)
	}
	h.Unit = cmp.Or(h.Unit, 300*time.Millisecond)
	if h.Begin == nil {
		h.Begin = func() error { return nil }
	}
	return h, nil
}

// info opens the driver once to get its Info.
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
