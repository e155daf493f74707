package lock_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func given(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestWarnComesBeforeTheDeadlineUnlessTheLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRenewals()
		l := process(t, d, lock.Config{TTL: 9 * time.Second})
		lease := acquire(t, l, "k")
		warned := lease.Warn(2 * time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		if given(warned) {
			t.Fatal("a lease that is renewed has warned")
		}
		d.failWith(driver.ErrUnavailable)
		<-warned
		if left := time.Until(lease.Deadline()); left <= 0 || left > 2*time.Second {
			t.Errorf("warned %v before the deadline, want 2s", left)
		}
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		d.failWith(nil)
		release(t, lease)
	})
}

func TestWarnComesWhenTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, newRenewals(), lock.Config{TTL: 9 * time.Second})
		lease := acquire(t, l, "k")
		warned := lease.Warn(time.Second)
		release(t, lease)
		<-warned
		<-lease.Warn(time.Second)
	})
}

func TestWarnComesBeforeADeadlineThatExtendHasMovedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, d := range map[string]driver.Driver{"in the process": memory.NewLock(), "in the fleet": sharing(t, memory.NewLock())()} {
			lease := acquire(t, process(t, d, lock.Config{}), "k", lock.TTL(time.Hour), lock.NoRenew())
			early, late := lease.Warn(5*time.Second), lease.Warn(time.Second)
			if err := lease.Extend(t.Context(), 2*time.Second); err != nil {
				t.Fatal(err)
			}
			if !given(early) {
				t.Errorf("%s: no warning by an Extend to less than its time", name)
			}
			<-late
			if left := time.Until(lease.Deadline()); left < time.Second-time.Microsecond || left > time.Second {
				t.Errorf("%s: warned %v before the deadline, want 1s", name, left)
			}
			release(t, lease)
		}
	})
}

func TestAWarningDoesNotKeepALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := process(t, memory.NewLock(), lock.Config{TTL: time.Second, Observer: &seen})
		warned := acquire(t, l, "k").Warn(100 * time.Millisecond)
		for range 5 {
			runtime.GC()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if events := eventsOf[lock.Forgotten](&seen); len(events) != 1 {
			t.Errorf("reported %+v", events)
		}
		select {
		case <-warned:
		default:
			t.Error("no warning at the end of the lease")
		}
	})
}

// A lease may last for days, and its holder may ask for a warning in a loop.
func TestALeaseKeepsNoWarningThatWasGiven(t *testing.T) {
	l := raw(t, memory.NewLock(), lock.Config{})
	lease := acquire(t, l, "k", lock.TTL(time.Hour))
	objects := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapObjects
	}
	const warnings = 10_000
	before := objects()
	for range warnings {
		<-lease.Warn(2 * time.Hour) // it is due
	}
	if after := objects(); after > before+warnings {
		t.Errorf("%d objects are left of %d warnings", after-before, warnings)
	}
	release(t, lease)
}
