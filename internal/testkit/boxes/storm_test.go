//go:build linux || darwin

package boxes

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// stand is a holder within this process. Its locker is cut off instead of
// killed: it goes on, as a process that has lost its slot does.
type stand struct {
	locker *lock.Locker
	slots  chan int
}

func (s *stand) Kill() error {
	cut, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.locker.Close(cut) // it names what is left to its TTL
	return nil
}

func (s *stand) Arrived() (int, bool) {
	select {
	case slot := <-s.slots:
		return slot, true
	default:
		return 0, false
	}
}

// inProcess is a storm over holders within this process, which share d.
func inProcess(t *testing.T, d driver.Driver, kills int) Storm {
	t.Helper()
	open := locktest.Share(d, driver.Fleet)
	locker := func() *lock.Locker {
		d, err := open()
		if err != nil {
			t.Fatal(err)
		}
		l, err := lock.New(d, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	life, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var holders sync.WaitGroup
	t.Cleanup(func() {
		_ = end.Close()
		holders.Wait()
		_ = life.Close()
	})
	start := func(t *testing.T, o Orders) Victim {
		s := &stand{locker: locker(), slots: make(chan int, 100)}
		holders.Go(func() {
			if err := o.Serve(s.locker, life, func(slot int) { s.slots <- slot }); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	l := locker()
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return Storm{Kills: kills, Size: 8, TTL: 500 * time.Millisecond, Locker: l, Start: start}
}

func TestNoBoxOfMemoryIsPreparedBeforeItIsClean(t *testing.T) {
	inProcess(t, memory.NewLock(), suite.Scaled(50)).Run(t)
}

func TestAStormFindsABrokenDriver(t *testing.T) {
	for name, d := range map[string]driver.Driver{
		"forgets":         history.Forgets{PoolDriver: memory.NewLock()},
		"takes for clean": history.TakesForClean{PoolDriver: memory.NewLock()},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{Storm: inProcess(t, d, 20), t: t, dir: t.TempDir()}
			r.rage()
			if _, err := Judge(r.dir); err == nil {
				t.Error("the log passes")
			}
		})
	}
}
