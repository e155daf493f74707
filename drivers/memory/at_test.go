package memory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
)

// The process may be stopped between the front's look at the clock and the call.
func TestCallWithAnOldTimeTakesNothingFromAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.NewLock()
		defer l.Close(t.Context())
		ask := func(token string, at time.Time, wait time.Duration) (driver.Grant, error) {
			return l.Acquire(t.Context(), driver.Request{
				Key: "k", Token: token, TTL: time.Second, Slots: 1, Fences: 1, Wait: wait, At: at,
			})
		}
		old := time.Now()
		first, err := ask("first", old, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond) // first has expired
		second, err := ask("second", time.Now(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if second.Fence <= first.Fence {
			t.Errorf("fence %d after %d", second.Fence, first.Fence)
		}

		if _, err := ask("third", old, 0); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("acquire of a held key at an old time = %v, want ErrNotAcquired", err)
		}
		first.At = old
		if err := l.Release(t.Context(), first); !errors.Is(err, driver.ErrLost) {
			t.Errorf("release of an expired grant at an old time = %v, want ErrLost", err)
		}
		if s, err := l.Inspect(t.Context(), "k"); err != nil || len(s.Holders) != 1 || s.Holders[0].Fence != second.Fence {
			t.Errorf("holders = %v, %v, want the second", s.Holders, err)
		}
	})
}

// The key became free between the look at the clock and the call (L20).
func TestCallWithAnOldTimeFindsTheKeyThatHasExpiredSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.NewLock()
		defer l.Close(t.Context())
		r := driver.Request{Key: "k", Token: "first", TTL: time.Second, Slots: 1, Fences: 1}
		if _, err := l.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		r.Token, r.At = "second", time.Now()
		time.Sleep(time.Second)
		if g, err := l.Acquire(t.Context(), r); err != nil || !g.Deadline.Equal(driver.Deadline(time.Now(), time.Second)) {
			t.Errorf("granted until %v, %v", g.Deadline, err)
		}
	})
}

func TestReleaseAtAnOldTimeGivesTheWaiterItsWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.NewLock()
		defer l.Close(t.Context())
		old := time.Now()
		r := driver.Request{Key: "k", Token: "holder", TTL: time.Minute, Slots: 1, Fences: 1}
		held, err := l.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan driver.Grant)
		go func() {
			r.Token, r.Wait = "waiter", -1
			g, err := l.Acquire(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			served <- g
		}()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		held.At = old
		if err := l.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		if g := <-served; !g.Deadline.Equal(driver.Deadline(time.Now(), time.Minute)) {
			t.Errorf("the waiter has %v, want %v", time.Until(g.Deadline), time.Until(driver.Deadline(time.Now(), time.Minute)))
		}
	})
}
