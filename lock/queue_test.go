package lock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func TestManyWaitersOfAProcessAreOneAtTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		holder, waiters := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, holder, "k")
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { release(t, acquire(t, waiters, "k", lock.Wait(lock.Forever))) })
		}
		synctest.Wait()
		if got := f.asked(); got != 2 {
			t.Errorf("the backend was asked %d times for 1 holder and 1000 waiters, want 2", got)
		}
		if got := waiters.Stats().Waiting; got != 1000 {
			t.Errorf("waiting: %d, want 1000", got)
		}
		release(t, held)
		wg.Wait()
		// A ticket serves its first waiter and 16 more.
		if got, want := f.asked(), 1+(1000+16)/17; got != want {
			t.Errorf("the backend was asked %d times in all, want %d", got, want)
		}
		if got := waiters.Stats().Waiting; got != 0 {
			t.Errorf("waiting afterwards: %d, want 0", got)
		}
	})
}

func TestAProcessHasTheKeyForOneTurnOnly(t *testing.T) {
	for _, c := range []struct {
		name string
		hold time.Duration // by each lease
		want int           // leases of one process in a row
	}{
		{"16 are handed on", time.Millisecond, 17},
		{"for 100 ms", 30 * time.Millisecond, 4},
		{"or none", 200 * time.Millisecond, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var order []string
				f := newFleet()
				var wg sync.WaitGroup
				for _, name := range []string{"a", "b"} {
					l := process(t, f, lock.Config{Wait: lock.Forever})
					for range 40 {
						wg.Go(func() {
							lease := acquire(t, l, "k")
							order = append(order, name)
							time.Sleep(c.hold)
							release(t, lease)
						})
					}
					synctest.Wait()
				}
				wg.Wait()
				// Both wait from the start to the end of the first two turns.
				turns := runs(order)[:2]
				if want := []int{c.want, c.want}; !slices.Equal(turns, want) {
					t.Errorf("leases in a row: %v, want %v", turns, want)
				}
			})
		})
	}
}

// runs returns the lengths of the runs of equal elements.
func runs(s []string) (lengths []int) {
	for i, x := range s {
		if i == 0 || s[i-1] != x {
			lengths = append(lengths, 0)
		}
		lengths[len(lengths)-1]++
	}
	return lengths
}

func TestHandedOnLeaseHasItsOwnFenceAndToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		l := process(t, f, lock.Config{})
		first := acquire(t, l, "k")
		second := make(chan *lock.Lease)
		go func() { second <- acquire(t, l, "k") }()
		synctest.Wait()
		release(t, first)
		handed := <-second
		if f.asked() != 1 {
			t.Errorf("the backend was asked %d times, want the second lease handed on", f.asked())
		}
		if !regexp.MustCompile(`^[\w-]{22}$`).MatchString(handed.Token()) {
			t.Errorf("the token is %q", handed.Token())
		}
		if handed.Fence() != first.Fence()+1 || handed.Token() == first.Token() {
			t.Errorf("fence %d after %d, tokens %q and %q", handed.Fence(), first.Fence(), first.Token(), handed.Token())
		}
		if err := first.Release(); err != nil {
			t.Errorf("second release of the first: %v", err)
		}
		if err := handed.Context().Err(); err != nil {
			t.Errorf("the successor ended with its predecessor: %v", err)
		}
		release(t, handed)
		third := acquire(t, l, "k")
		if third.Fence() <= handed.Fence() {
			t.Errorf("fence %d after %d", third.Fence(), handed.Fence())
		}
		release(t, third)
	})
}

func TestDifferentRequestsAreNotHandedOn(t *testing.T) {
	for name, opts := range map[string][]lock.Option{
		"another TTL": {lock.TTL(time.Minute)},
		"NoRenew":     {lock.NoRenew()},
		"FIFO":        {lock.FIFO()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				l := process(t, f, lock.Config{})
				first := acquire(t, l, "k")
				next := make(chan *lock.Lease)
				go func() { next <- acquire(t, l, "k", opts...) }()
				synctest.Wait()
				if f.asked() != 2 {
					t.Errorf("the backend was asked %d times while the second one waits, want 2", f.asked())
				}
				release(t, first)
				second := <-next
				if second.Fence() <= first.Fence()+16 {
					t.Errorf("fence %d is one of the grant with %d", second.Fence(), first.Fence())
				}
				release(t, second)
			})
		})
	}
}

func TestWaiterThatGivesUpLeavesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b, c := process(t, f, lock.Config{}), process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, a, "k")
		var order []string
		var wg sync.WaitGroup
		enter := func(ctx context.Context, l *lock.Locker, name string) {
			wg.Go(func() {
				lease, err := l.Acquire(ctx, "k", lock.Wait(lock.Forever))
				if err != nil {
					return
				}
				order = append(order, name)
				release(t, lease)
			})
			synctest.Wait()
		}
		impatient, giveUp := context.WithCancel(t.Context())
		enter(impatient, b, "b, who gives up")
		enter(t.Context(), c, "c")
		enter(t.Context(), b, "b")
		giveUp()
		synctest.Wait()
		release(t, held)
		wg.Wait()
		if want := []string{"b", "c"}; !slices.Equal(order, want) {
			t.Errorf("order of service %v, want %v: b's place was taken before c's", order, want)
		}
		if f.asked() != 3 {
			t.Errorf("the backend was asked %d times, want 3: one for each process", f.asked())
		}
	})
}

func TestTheLastToGiveUpWithdrawsTheTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, a, "k")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := b.Acquire(ctx, "k")
				if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled waiter: %v", err)
				}
			})
		}
		synctest.Wait()
		if s, _ := f.Driver.Inspect(t.Context(), "k"); len(s.Waiters) != 1 {
			t.Errorf("%d waiters at the backend, want 1", len(s.Waiters))
		}
		cancel()
		wg.Wait()
		synctest.Wait()
		if s, _ := f.Driver.Inspect(t.Context(), "k"); len(s.Waiters) != 0 {
			t.Errorf("%d waiters at the backend after all gave up, want none", len(s.Waiters))
		}
		release(t, held)
	})
}

// The ticket was sent with the TTL of the waiter that has given up.
func TestAWaiterKeepsItsShorterTTLOnTheTicketOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		other, l := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, other, "k")
		ctx, cancel := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		waits.Go(func() { _, _ = l.Acquire(ctx, "k", lock.TTL(time.Hour)) })
		synctest.Wait()
		waits.Go(func() {
			lease := acquire(t, l, "k", lock.TTL(3*time.Second))
			if left := time.Until(lease.Deadline()); left > 3*time.Second {
				t.Errorf("at first: %v left", left)
			}
			time.Sleep(time.Minute)
			if left := time.Until(lease.Deadline()); lease.Err() != nil || left > 3*time.Second {
				t.Errorf("after a minute: %v, %v left", lease.Err(), left)
			}
			release(t, lease)
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		release(t, held)
		waits.Wait()
		if f.asked() != 2 {
			t.Errorf("%d requests, want one ticket for both waiters", f.asked())
		}
	})
}

// A waiter to whom the lease would have been handed on is served at once when it is
// taken away.
func TestTheWaiterBehindAForcedLeaseIsServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		other, l := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, l, "k")
		held.Context().Done() // something waits for its end
		served := make(chan time.Time)
		go func() {
			lease, err := l.Acquire(t.Context(), "k")
			served <- time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			release(t, lease)
		}()
		synctest.Wait()
		forced := time.Now()
		if n, err := other.ForceRelease(t.Context(), "k", "test"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if took := (<-served).Sub(forced); took > time.Millisecond {
			t.Errorf("served after %v", took)
		}
		if err := held.Release(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the lease was live: %v", err)
		}
	})
}

// What has happened to a lease does not happen to the one to which it is handed on: the
// context of the first one has ended, which had a watch, and the second one lives on.
func TestTheEndOfAContextEndsNoLaterLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 150 * time.Millisecond
		d := newRenewals()
		l := process(t, d, lock.Config{TTL: ttl})
		ctx, cancel := context.WithCancel(t.Context())
		held, err := l.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan *lock.Lease)
		go func() { served <- acquire(t, l, "k", lock.Wait(time.Minute)) }()
		time.Sleep(ttl / 2) // the first renewal is over
		if d.count() != 1 {
			t.Errorf("%d renewals", d.count())
		}
		cancel()
		synctest.Wait()
		release(t, held)
		next := <-served
		time.Sleep(time.Minute)
		if err := next.Err(); err != nil || next.Fence() != held.Fence()+1 {
			t.Errorf("the lease with fence %d after the one with %d: %v", next.Fence(), held.Fence(), err)
		}
		release(t, next)
	})
}

// A waiter that is cancelled asks the backend nothing if it knows that the key is busy.
func TestACancelledWaiterBehindItsProcessCostsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		l := process(t, f, lock.Config{})
		held := acquire(t, l, "k")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // less than a turn
		defer cancel()
		if _, err := l.Acquire(ctx, "k"); !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		f.calls.mu.Lock()
		inspects := f.calls.inspects
		f.calls.mu.Unlock()
		if inspects != 0 || f.asked() != 1 {
			t.Errorf("%d requests and %d looks at the backend", f.asked(), inspects)
		}
		release(t, held)
	})
}

// The backend grants at the instant at which the last waiter gives up.
func TestAGrantWithoutAWaiterGoesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := &hooked{Driver: f, scope: driver.Fleet}
		d.acquire = func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			return d.Acquire(context.WithoutCancel(ctx), r)
		}
		other, l := process(t, f, lock.Config{}), process(t, d, lock.Config{})
		held := acquire(t, other, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx, "k", lock.TTL(time.Hour)); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("got %v", err)
		}
		release(t, held) // to the ticket of the waiter that has gone
		synctest.Wait()
		if s, err := f.Inspect(t.Context(), "k"); err != nil || len(s.Holders) != 0 {
			t.Errorf("nobody has the lease, and the key is held by %+v, %v", s.Holders, err)
		}
	})
}

func TestAnErrorOfTheTicketAnswersAllItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		l := process(t, f, lock.Config{})
		f.calls.fail = fmt.Errorf("%w: no route to host", driver.ErrUnavailable)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
	})
}

func TestWaitersThatTimeOutTogetherLookOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, a, "k", lock.Label("stocktaking"))
		var wg sync.WaitGroup
		positions := make([]int, 100)
		for i := range positions {
			wg.Go(func() {
				_, err := b.Acquire(t.Context(), "k", lock.Wait(time.Second))
				var busy *lock.NotAcquiredError
				if !errors.As(err, &busy) {
					t.Errorf("got %v", err)
					return
				}
				if len(busy.Holders) != 1 || busy.Holders[0].Label != "stocktaking" || busy.Waited != time.Second {
					t.Errorf("got %+v", busy)
				}
				positions[i] = busy.Position
			})
		}
		wg.Wait()
		if f.calls.inspects != 1 {
			t.Errorf("%d looks at the backend, want 1", f.calls.inspects)
		}
		if slices.Min(positions) < 1 || slices.Max(positions) > 100 {
			t.Errorf("positions %v", positions)
		}
		if s := b.Stats(); s.TimedOut != 100 {
			t.Errorf("timed out: %d, want 100", s.TimedOut)
		}
		release(t, held)
	})
}

func TestInspectShowsTheWaitersBehindTheTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, a, "k", lock.Label("holder"))
		var wg sync.WaitGroup
		for _, label := range []string{"one", "two", "three"} {
			wg.Go(func() { release(t, acquire(t, b, "k", lock.Label(label))) })
			synctest.Wait()
		}
		s, err := b.Inspect(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		var labels []string
		for _, w := range s.Waiters {
			labels = append(labels, w.Label)
		}
		if want := []string{"one", "two", "three"}; !slices.Equal(labels, want) || s.Holders[0].Label != "holder" {
			t.Errorf("holders %v, waiters %v", s.Holders, labels)
		}
		release(t, held)
		wg.Wait()
	})
}

// Two Lockers of one process ask in the same instant: each completes its own
// ticket, and not that of the other.
func TestInspectKeepsTheTicketsOfTwoLockersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		holder, a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, holder, "k")
		var wg sync.WaitGroup
		wg.Go(func() { release(t, acquire(t, a, "k", lock.Label("of a"))) })
		synctest.Wait()
		wg.Go(func() { release(t, acquire(t, b, "k", lock.Label("of b"))) })
		synctest.Wait()
		s, err := b.Inspect(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Waiters) != 2 || s.Waiters[0].Label != "of a" || s.Waiters[1].Label != "of b" {
			t.Errorf("the waiters are %v, want that of a before that of b", s.Waiters)
		}
		release(t, held)
		wg.Wait()
	})
}

// Two Lockers of one process differ in nothing but the time of their requests.
func TestInspectKeepsTheTicketsOfTwoTimesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		holder, a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, holder, "k")
		start := time.Now()
		var wg sync.WaitGroup
		for _, l := range []*lock.Locker{a, b} {
			time.Sleep(time.Second)
			wg.Go(func() { release(t, acquire(t, l, "k")) })
		}
		synctest.Wait()
		s, err := b.Inspect(t.Context(), "k")
		if err != nil || len(s.Waiters) != 2 || s.Waiters[0].Since.Sub(start) != time.Second || s.Waiters[1].Since.Sub(start) != 2*time.Second {
			t.Errorf("the waiters are %v, %v, want that of a before that of b", s.Waiters, err)
		}
		release(t, held)
		wg.Wait()
	})
}

func TestPoolWaitersDoNotBlockPlainOnesForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, b := process(t, f, lock.Config{}), process(t, f, lock.Config{})
		held := acquire(t, a, "k", lock.Slots(2))
		also := acquire(t, b, "k", lock.Slots(2))
		if held.Slot() == also.Slot() {
			t.Errorf("both have slot %d", held.Slot())
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := b.Acquire(ctx, "k", lock.Slots(2))
			gone <- err
		}()
		synctest.Wait()
		done := make(chan *lock.Lease)
		go func() { done <- acquire(t, b, "k", lock.Wait(lock.Forever)) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		release(t, held)
		release(t, also)
		release(t, <-done)
	})
}

// silent is a driver that can be asked in two parts and never answers.
type silent struct{ fleet }

func (s silent) Ask(ctx context.Context, _ driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	<-ctx.Done()
	return driver.Grant{}, nil, ctx.Err()
}

func TestWaiterThatGivesUpIsNotRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silent{newFleet()}
		l := process(t, s, lock.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that ended: %v", err)
		}
		if _, err := l.Acquire(t.Context(), "k", lock.Wait(time.Millisecond)); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("a wait that passed without an answer: %v, want an outage", err)
		}
		synctest.Wait()
		if got := s.asked(); got != 0 {
			t.Errorf("%d requests were sent for waiters that had given up", got)
		}
	})
}
