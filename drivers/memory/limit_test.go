package memory_test

import (
	"testing"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/limit/limittest"
	"github.com/megaframework/mega/lock"
)

func TestLimitConformance(t *testing.T) {
	var d *memory.Limit // of the case
	limittest.Run(t, limittest.Harness{
		Begin:    func() error { d = memory.NewLimit(); return nil },
		Open:     func() (driver.Driver, error) { return limittest.Share(d, driver.Process)() },
		Locker:   func() (*lock.Locker, error) { return lock.New(memory.NewLock(), lock.Config{}) },
		FakeTime: true,
	})
}
