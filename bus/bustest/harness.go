package bustest

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// Harness gives the suite access to the driver under test. Open alone is
// required.
type Harness struct {
	// Open opens the driver as one more process on the same backend. Two opened
	// drivers share the backend and nothing else. The suite closes each. A
	// driver of scope Process is opened once for each case.
	Open func() (driver.Driver, error)

	// Begin, if set, is called before each case, under FakeTime inside its
	// bubble. Later calls of Open use the backend that Begin has prepared.
	Begin func() error

	// FakeTime reports that the driver uses no clock except package time, so
	// that it can run in a bubble of testing/synctest. Run gives each case a
	// bubble of its own; Check runs in its caller's.
	FakeTime bool

	// Unit is the unit of the durations in cases. A short one makes the run
	// quick, a long one tolerates slow machines. Default 100ms, or 1s on fake
	// time.
	Unit time.Duration

	// Faults lists the faults that can be caused at the backend and its
	// connections. Cases that need a fault which does not exist are not
	// registered, and the run lists them.
	Faults Faults

	// Background names functions (as in "net/http.(*Server).Serve") whose
	// goroutines belong to the harness and may outlive a case.
	Background []string

	impatient bool // an expectation that does not hold at once fails
}

// Faults lists the faults that a harness can cause at its backend; nil marks a
// fault that it cannot cause. Each returns when the fault is in effect. The
// suite undoes what it has done before it closes its processes.
type Faults struct {
	// Drop breaks the connections of all processes, which may connect again at
	// once.
	Drop func() error
	// Down takes the backend away, and Up brings it back, with nothing of what
	// it knew.
	Down, Up func() error
	// Leave ends the backend in order, as a rolling restart does, and returns
	// when its successor serves.
	Leave func() error
	// Pause and Continue halt the backend as SIGSTOP and SIGCONT do.
	Pause, Continue func() error
	// Crash cuts a process off for good, as kill -9 does: the backend sees its
	// connection close without a goodbye. The argument is the driver that Open
	// returned.
	Crash func(d driver.Driver) error
	// Cut breaks the connection of one process, with what is on it, while those
	// of the others stand. It may connect again at once. It is given what Open
	// returned.
	Cut func(d driver.Driver) error
	// Deafen holds all data to one process until undone; its requests arrive. The
	// backend may drop what it has no room for.
	Deafen func(d driver.Driver) (undo func() error, err error)
	// Slow bounds every connection to so many bytes per second in each direction.
	// 0 ends it.
	Slow func(bytesPerSecond int) error
	// Refuse makes the backend deny these subjects to all: to publish, to request
	// and to subscribe. Subscriptions that stand there are revoked. Allow ends it.
	Refuse func(subjects ...string) error
	Allow  func() error
	// Shrink lowers the backend's limit of a message without announcing it. A
	// larger message makes it close the connection for good. 0 ends it.
	Shrink func(limit int) error
	// Registrations counts the subscriptions of all processes that the backend
	// knows of.
	Registrations func() (int, error)
}

// fault is the name of a field of Faults.
type fault string

func (f Faults) has(name fault) bool {
	return !reflect.ValueOf(f).FieldByName(string(name)).IsZero()
}

func (h Harness) withDefaults() (Harness, error) {
	if h.Open == nil {
		return h, fmt.Errorf("bustest: Harness.Open is required")
	}
	if h.FakeTime {
		h.Unit = cmp.Or(h.Unit, time.Second)
	}
	h.Unit = cmp.Or(h.Unit, 100*time.Millisecond)
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
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		return info, fmt.Errorf("close %s: %w", info.Name, err)
	}
	return info, nil
}
