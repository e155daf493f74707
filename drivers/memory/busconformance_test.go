package memory_test

import (
	"testing"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/memory"
)

func TestBusConformance(t *testing.T) {
	h := bustest.Harness{
		Open:     func() (driver.Driver, error) { return memory.NewBus(), nil },
		FakeTime: true,
	}
	bustest.Run(t, h)
	bustest.RunFlawed(t, h)
}

// What a publisher waits for cannot be seen where the time stands still.
func TestPublishingTakesNoLongerWhenOneIsStuck(t *testing.T) {
	err := bustest.Check(t.Context(), bustest.Harness{
		Open: func() (driver.Driver, error) { return memory.NewBus(), nil },
	}, "S10/a stuck subscription delays neither the publisher nor other subscriptions")
	if err != nil {
		t.Error(err)
	}
}
