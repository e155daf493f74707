package memory_test

import (
	"testing"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

func TestConformance(t *testing.T) {
	var d *memory.Lock // of the case
	locktest.Run(t, locktest.Harness{
		Begin:    func() error { d = memory.NewLock(); return nil },
		Open:     func() (driver.Driver, error) { return locktest.Share(d, driver.Process)() },
		FakeTime: true,
	})
}
