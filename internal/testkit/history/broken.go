package history

import (
	"context"

	"github.com/megaframework/mega/lock/driver"
)

// The drivers below break the promises about the slots of pools, for tests of what
// judges a driver.

// Forgets is a driver that grants each slot as clean, whatever its last holder has
// left.
type Forgets struct{ driver.PoolDriver }

// Acquire hides what was found in the slot.
func (f Forgets) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := f.PoolDriver.Acquire(ctx, r)
	if g.Found != nil {
		g.Found = &driver.Found{}
	}
	return g, err
}

// TakesForClean is a driver that takes each released slot for clean.
type TakesForClean struct{ driver.PoolDriver }

// Release releases the slot as clean.
func (t TakesForClean) Release(ctx context.Context, g driver.Grant) error {
	g.Handback = &driver.Handback{Status: driver.SlotFree}
	return t.PoolDriver.Release(ctx, g)
}
