package memory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock/driver"
)

func TestTheReleaserHandsOverInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		held := acquire(t, d, request("k", "first"))
		waiting := make([]<-chan outcome, 5)
		for i := range waiting {
			waiting[i] = wait(t, d, patient("k", "w"+strconv.Itoa(i)))
		}
		for i, w := range waiting {
			if err := d.Release(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case o := <-w:
				if o.err != nil || o.grant.Fence <= held.Fence {
					t.Fatalf("waiter %d: fence %d after %d, %v", i, o.grant.Fence, held.Fence, o.err)
				}
				held = o.grant
			default:
				t.Fatalf("waiter %d was not served next", i)
			}
		}
	})
}

func TestAnExpiryServesTheQueueInThatInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		start := time.Now()
		acquire(t, d, request("k", "crashed")) // 10s
		if o := <-wait(t, d, patient("k", "next")); o.err != nil {
			t.Fatal(o.err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("served after %v, want 10s", took)
		}
	})
}

func TestARenewalMovesTheExpiryThatWaitersWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		start := time.Now()
		g := acquire(t, d, request("k", "holder"))
		next := wait(t, d, patient("k", "next"))
		time.Sleep(9 * time.Second)
		g.TTL = 5 * time.Second
		renewal := d.Renew(t.Context(), []driver.Grant{g})[0]
		if want := driver.Deadline(time.Now(), g.TTL); renewal.Err != nil || !renewal.Deadline.Equal(want) {
			t.Fatalf("renewed until %v, %v; want %v", renewal.Deadline, renewal.Err, want)
		}
		<-next
		if took := time.Since(start); took != 14*time.Second {
			t.Errorf("served after %v, want 14s", took)
		}
	})
}

func TestAShorterTermIsNoticedByItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		start := time.Now()
		g := acquire(t, d, request("k", "holder"))
		next := wait(t, d, patient("k", "next"))
		g.TTL = time.Second
		d.Renew(t.Context(), []driver.Grant{g})
		<-next
		if took := time.Since(start); took != time.Second {
			t.Errorf("served after %v, want 1s", took)
		}
	})
}

// An entry is used again for another lease while the timer that was armed for
// the first one is still to come.
func TestALateRenewalNeitherLengthensNorShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		held := acquire(t, d, request("k", "holder"))
		newer := held
		newer.TTL, newer.Rev = time.Second, 1
		want := d.Renew(t.Context(), []driver.Grant{newer})[0].Deadline
		for _, ttl := range []time.Duration{time.Hour, time.Millisecond} {
			late := held
			late.TTL = ttl
			if r := d.Renew(t.Context(), []driver.Grant{late})[0]; r.Err != nil || !r.Deadline.Equal(want) {
				t.Errorf("a late renewal to %v: deadline %v, %v; want %v", ttl, r.Deadline, r.Err, want)
			}
		}
		time.Sleep(time.Second)
		if s, err := d.Inspect(t.Context(), "k"); err != nil || len(s.Holders) != 0 {
			t.Errorf("a second after the newest renewal: %+v, %v", s, err)
		}
	})
}

func TestAFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		held := acquire(t, d, request("k", "holder"))
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for i := range driver.MaxTickets {
			waiting.Go(func() { _, _ = d.Acquire(ctx, patient("k", "w"+strconv.Itoa(i))) })
		}
		synctest.Wait()
		_, err := d.Acquire(t.Context(), patient("k", "one too many"))
		busy, ok := errors.AsType[*driver.NotAcquiredError](err)
		if !ok || !busy.Full || busy.Code() != "lock.queue_full" || len(busy.Holders) != 1 {
			t.Errorf("ticket %d: %v", driver.MaxTickets+1, err)
		}
		if again := acquire(t, d, request("k", "holder")); again.Fence != held.Fence {
			t.Errorf("the holder's request that is sent again has fence %d, want %d", again.Fence, held.Fence)
		}
		cancel()
		waiting.Wait()
	})
}

func TestATimerBelongsToItsGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		g := acquire(t, d, request("k", "first"))
		impatient := patient("k", "impatient")
		impatient.Wait = time.Second
		if o := <-wait(t, d, impatient); !errors.Is(o.err, driver.ErrNotAcquired) {
			t.Fatalf("got %v, want ErrNotAcquired", o.err)
		}
		_ = d.Release(t.Context(), g)
		time.Sleep(8 * time.Second)
		second := acquire(t, d, request("k", "second"))
		time.Sleep(5 * time.Second) // past the expiry of the first
		if r := d.Renew(t.Context(), []driver.Grant{second})[0]; r.Err != nil {
			t.Errorf("the second lease ended with the first one's timer: %v", r.Err)
		}
	})
}

func TestAnExpiredGrantStaysExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		g := acquire(t, d, request("k", "holder"))
		time.Sleep(g.TTL)
		if s, _ := d.Inspect(t.Context(), "k"); len(s.Holders) != 0 {
			t.Errorf("still held by %v at the end of its TTL", s.Holders)
		}
		if r := d.Renew(t.Context(), []driver.Grant{g})[0]; !errors.Is(r.Err, driver.ErrLost) {
			t.Errorf("renewal said %v, want ErrLost", r.Err)
		}
		if err := d.Release(t.Context(), g); !errors.Is(err, driver.ErrLost) {
			t.Errorf("release said %v, want ErrLost", err)
		}
	})
}

func TestAPoolGivesEachItsOwnLowestSlot(t *testing.T) {
	d := memory.NewLock()
	var grants []driver.Grant
	for i := range 40 {
		g := acquire(t, d, pooled("pool", strconv.Itoa(i), 40))
		if g.Slot != i {
			t.Fatalf("grant %d has slot %d", i, g.Slot)
		}
		grants = append(grants, g)
	}
	if _, err := d.Acquire(t.Context(), pooled("pool", "one more", 40)); !errors.Is(err, driver.ErrNotAcquired) {
		t.Fatalf("got %v, want ErrNotAcquired", err)
	}
	for _, i := range []int{17, 3} {
		_ = d.Release(t.Context(), grants[i])
	}
	for _, want := range []int{3, 17} {
		if g := acquire(t, d, pooled("pool", fmt.Sprint("again", want), 40)); g.Slot != want {
			t.Errorf("got slot %d, want %d", g.Slot, want)
		}
	}
}

func TestAShrunkPoolDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		a := acquire(t, d, pooled("pool", "a", 3))
		b := acquire(t, d, pooled("pool", "b", 3))
		c := acquire(t, d, pooled("pool", "c", 3))
		r := pooled("pool", "one", 1)
		r.Wait = -1
		next := wait(t, d, r)
		for _, g := range []driver.Grant{a, b} {
			_ = d.Release(t.Context(), g)
			synctest.Wait()
			if len(next) > 0 {
				t.Fatalf("granted while another of the larger pool was held")
			}
		}
		_ = d.Release(t.Context(), c)
		o := <-next
		if o.err != nil || o.grant.Slot != 0 || o.grant.Resized != 3 {
			t.Errorf("got slot %d, resized from %d, %v; want 0, 3, nil", o.grant.Slot, o.grant.Resized, o.err)
		}
	})
}

func TestAGrownPoolServesItsQueueFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		acquire(t, d, pooled("pool", "a", 1))
		r := pooled("pool", "b", 1)
		r.Wait = -1
		next := wait(t, d, r)
		g := acquire(t, d, pooled("pool", "c", 3))
		if o := <-next; o.err != nil || o.grant.Slot != 1 || o.grant.Fence >= g.Fence {
			t.Errorf("the waiter got slot %d and fence %d, the newcomer %d; %v", o.grant.Slot, o.grant.Fence, g.Fence, o.err)
		}
		if g.Slot != 2 || g.Resized != 1 {
			t.Errorf("got slot %d, resized from %d; want 2, 1", g.Slot, g.Resized)
		}
	})
}

func TestForceNotifiesTheHoldersAndServesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		g := acquire(t, d, request("k", "holder"))
		next := wait(t, d, patient("k", "next"))
		n, err := d.ForceRelease(t.Context(), "k", driver.Force{Reason: "deploy", By: driver.Holder{PID: 7}})
		if n != 1 || err != nil {
			t.Fatalf("forced %d, %v", n, err)
		}
		for range g.Lost { // until it is closed
		}
		if o := <-next; o.err != nil {
			t.Fatal(o.err)
		}
		var lost *driver.LostError
		r := d.Renew(t.Context(), []driver.Grant{g})[0]
		if !errors.As(r.Err, &lost) || lost.Cause != driver.Forced || lost.Reason != "deploy" || lost.By.PID != 7 {
			t.Errorf("renewal said %v", r.Err)
		}
	})
}

func TestForceOnAFreeKeyIsNothing(t *testing.T) {
	d := memory.NewLock()
	if n, err := d.ForceRelease(t.Context(), "k", driver.Force{Reason: "why not"}); n != 0 || err != nil {
		t.Errorf("got %d, %v; want 0, nil", n, err)
	}
	if entries, gone, timers := d.Size(); entries+gone+timers != 0 {
		t.Errorf("left %d entries, %d tokens, %d timers", entries, gone, timers)
	}
}

func TestATokenReleasedBeforeItWasSeenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		r := request("k", "late")
		if err := d.Release(t.Context(), driver.Grant{Key: "k", Token: "late"}); !errors.Is(err, driver.ErrLost) {
			t.Errorf("release said %v, want ErrLost", err)
		}
		if g, err := d.Acquire(t.Context(), r); err == nil {
			t.Fatalf("granted fence %d to a withdrawn token", g.Fence)
		}
		time.Sleep(2 * time.Minute)
		if entries, gone, timers := d.Size(); entries+gone+timers != 0 {
			t.Errorf("two minutes later %d entries, %d tokens, %d timers are left", entries, gone, timers)
		}
	})
}

func TestAskingAgainAnswersTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		g := acquire(t, d, request("k", "a"))
		if again := acquire(t, d, request("k", "a")); again.Fence != g.Fence || again.Slot != g.Slot {
			t.Errorf("fence %d, slot %d; the first time %d, %d", again.Fence, again.Slot, g.Fence, g.Slot)
		}
		one := wait(t, d, patient("k", "b"))
		two := wait(t, d, patient("k", "b"))
		synctest.Wait()
		if s, _ := d.Inspect(t.Context(), "k"); len(s.Waiters) != 1 {
			t.Errorf("%d waiters for one token", len(s.Waiters))
		}
		_ = d.Release(t.Context(), g)
		if a, b := <-one, <-two; a.err != nil || b.err != nil || a.grant.Fence != b.grant.Fence {
			t.Errorf("fences %d and %d, %v, %v", a.grant.Fence, b.grant.Fence, a.err, b.err)
		}
	})
}

// The end of one call of a token does not end the wait of another one (L6).
func TestARepeatedCallOutlivesTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		g := acquire(t, d, request("k", "a"))
		brief := patient("k", "b")
		brief.Wait = time.Second
		one, two := wait(t, d, brief), wait(t, d, patient("k", "b"))
		if o := <-one; !errors.Is(o.err, driver.ErrNotAcquired) {
			t.Errorf("got %v, want ErrNotAcquired", o.err)
		}
		if s, _ := d.Inspect(t.Context(), "k"); len(s.Waiters) != 1 {
			t.Errorf("%d waiters, want the second call", len(s.Waiters))
		}
		_ = d.Release(t.Context(), g)
		if o := <-two; o.err != nil {
			t.Error(o.err)
		}
	})
}

func TestReleasingAWaiterWithdrawsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		acquire(t, d, request("k", "a"))
		w := wait(t, d, patient("k", "b"))
		synctest.Wait()
		if err := d.Release(t.Context(), driver.Grant{Key: "k", Token: "b"}); err != nil {
			t.Fatal(err)
		}
		if o := <-w; o.err == nil {
			t.Errorf("the withdrawn request was granted")
		}
		if s, _ := d.Inspect(t.Context(), "k"); len(s.Waiters) != 0 {
			t.Errorf("still queued: %v", s.Waiters)
		}
	})
}

// Whether the wait or the grant comes first in the same instant is open, but
// the lock must be with somebody or free.
func TestAGrantInTheInstantOfTheTimeoutIsNotLost(t *testing.T) {
	for i := range 2000 {
		synctest.Test(t, func(t *testing.T) {
			d := memory.NewLock()
			g := acquire(t, d, request("k", "a"))
			r := request("k", "b")
			r.Wait = time.Second
			w := wait(t, d, r)
			time.Sleep(time.Second - time.Duration(i%2))
			_ = d.Release(t.Context(), g)
			o := <-w
			s, _ := d.Inspect(t.Context(), "k")
			if granted := o.err == nil; granted != (len(s.Holders) == 1) || len(s.Waiters) != 0 {
				t.Errorf("granted: %v, state: %+v", granted, s)
			}
		})
	}
}

func TestACancelledWaiterLeavesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		g := acquire(t, d, request("k", "a"))
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := d.Acquire(ctx, patient("k", "b"))
			gone <- err
		}()
		synctest.Wait()
		next := wait(t, d, patient("k", "c"))
		synctest.Wait()
		cancel()
		var busy *driver.NotAcquiredError
		if err := <-gone; !errors.Is(err, context.Canceled) || !errors.As(err, &busy) || busy.Position != 1 {
			t.Errorf("got %v, want context canceled at position 1", err)
		}
		_ = d.Release(t.Context(), g)
		if o := <-next; o.err != nil {
			t.Error(o.err)
		}
	})
}

func TestCloseEndsWaitersAndLeavesGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		g := acquire(t, d, request("k", "a"))
		w := wait(t, d, patient("k", "b"))
		synctest.Wait()
		for range 2 {
			if err := d.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if o := <-w; !errors.Is(o.err, driver.ErrClosed) {
			t.Errorf("the waiter got %v, want ErrClosed", o.err)
		}
		if _, err := d.Acquire(t.Context(), request("k", "c")); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		if err := d.Release(t.Context(), g); err != nil {
			t.Errorf("release after close: %v", err)
		}
	})
}

func TestAbandonedDriverIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		for i := range 1000 {
			r := request(strconv.Itoa(i), strconv.Itoa(i))
			r.TTL = time.Duration(i+1) * 100 * time.Millisecond
			acquire(t, d, r)
		}
		if entries, _, timers := d.Size(); entries != 1000 || timers > 64 {
			t.Errorf("%d entries and %d timers, want 1000 and at most 64", entries, timers)
		}
		time.Sleep(2 * time.Minute)
		if entries, gone, timers := d.Size(); entries+gone+timers != 0 {
			t.Errorf("left %d entries, %d tokens, %d timers", entries, gone, timers)
		}
	})
}

func TestAMillionNamesLeaveNothing(t *testing.T) {
	n := suite.Scaled(1_000_000)
	d := memory.NewLock()
	before := heap()
	for i := range n {
		name := strconv.Itoa(i)
		_ = d.Release(t.Context(), acquire(t, d, request("alone:"+name, name)))
	}
	grants := make([]driver.Grant, n/4)
	for i := range grants {
		name := strconv.Itoa(i)
		r := request("together:"+name, name)
		r.TTL = time.Hour // a slow machine takes longer than a short one, and late releases leave their tokens
		grants[i] = acquire(t, d, r)
	}
	for _, g := range grants {
		_ = d.Release(t.Context(), g)
	}
	clear(grants)
	if after := heap(); after > before+2<<20 {
		t.Errorf("%d bytes more in use than before", after-before)
	}
	if entries, gone, _ := d.Size(); entries+gone != 0 {
		t.Errorf("left %d entries, %d tokens", entries, gone)
	}
	runtime.KeepAlive(d)
}

func TestFencesGrowFromTheTimeOfDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewLock()
		var last uint64
		for i := range 100 {
			r := request("k", strconv.Itoa(i))
			r.Fences = 17
			g := acquire(t, d, r)
			if g.Fence <= last || g.Fences != 17 {
				t.Fatalf("fences %d to +%d after %d", g.Fence, g.Fences, last)
			}
			last = g.Fence + 16
			_ = d.Release(t.Context(), g)
		}
		time.Sleep(time.Hour)
		if g := acquire(t, d, request("k", "later")); g.Fence < uint64(time.Now().UnixMicro()) {
			t.Errorf("fence %d is below the time, %d", g.Fence, time.Now().UnixMicro())
		}
	})
}

func TestExclusionUnderLoad(t *testing.T) {
	d := memory.NewLock()
	var wg sync.WaitGroup
	held := make([]int, 4) // guarded by the locks themselves
	rounds := suite.Scaled(2000)
	for w := range 8 {
		wg.Go(func() {
			for i := range rounds {
				k := (w + i) % len(held)
				r := patient(strconv.Itoa(k), fmt.Sprint(w, "-", i))
				g, err := d.Acquire(context.Background(), r)
				if err != nil {
					t.Error(err)
					return
				}
				held[k]++
				_ = d.Release(context.Background(), g)
			}
		})
	}
	wg.Wait()
	if sum := held[0] + held[1] + held[2] + held[3]; sum != 8*rounds {
		t.Errorf("counted %d, want %d", sum, 8*rounds)
	}
}

type outcome struct {
	grant driver.Grant
	err   error
}

func wait(t *testing.T, d driver.Driver, r driver.Request) <-chan outcome {
	t.Helper()
	c := make(chan outcome, 1)
	go func() {
		g, err := d.Acquire(context.WithoutCancel(t.Context()), r)
		c <- outcome{g, err}
	}()
	synctest.Wait()
	return c
}

func acquire(t *testing.T, d driver.Driver, r driver.Request) driver.Grant {
	t.Helper()
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("acquire %q: %v", r.Key, err)
	}
	return g
}

func patient(key, token string) driver.Request {
	r := request(key, token)
	r.Wait = -1
	return r
}

func pooled(key, token string, slots int) driver.Request {
	r := request(key, token)
	r.Slots = slots
	return r
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
