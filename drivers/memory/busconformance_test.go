package memory_test

import (
	"testing"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/memory"
)

func TestBusConformance(t *testing.T) {
	bustest.Run(t, bustest.Harness{
		Open:     func() (driver.Driver, error) { return memory.NewBus(), nil },
		FakeTime: true,
	})
}
