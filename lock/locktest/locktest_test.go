package locktest_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// The front's local queue, over a table that several processes share.
func TestFleet(t *testing.T) {
	locktest.Run(t, new(fleet).harness())
}

// The same with drivers whose Acquire has two parts.
func TestAskingFleet(t *testing.T) {
	locktest.Run(t, (&fleet{asks: true}).harness())
}

// A driver without its optional interfaces passes, although the processes that
// share it have methods for runs.
func TestSharedDriverOfLocksAloneLacksRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := locktest.Share(struct{ driver.Driver }{memory.NewLock()}, driver.Process)
		h := locktest.Harness{Open: open, FakeTime: true}
		if err := locktest.Check(t.Context(), h, "L19/With renews until fn has returned, also when its context has ended"); err != nil {
			t.Error(err)
		}
		if err := locktest.Check(t.Context(), h, "O1/of many calls in all processes one runs in a tick"); err == nil || !strings.Contains(err.Error(), "no case") {
			t.Errorf("the cases of runs apply to it: %v", err)
		}
	})
}
