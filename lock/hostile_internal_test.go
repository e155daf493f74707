package lock

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
)

func TestWarnWithTheLeastDurationDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(memory.NewLock(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		var reads atomic.Int64
		l.clock.read = func() time.Time { reads.Add(1); return time.Now() }
		lease, err := l.Acquire(t.Context(), "k", NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		warned := lease.Warn(math.MinInt64)
		before := reads.Load()
		time.Sleep(10 * time.Microsecond)
		synctest.Wait()
		if n := reads.Load() - before; n > 10 {
			t.Errorf("it reads the clock %d times in 10 µs", n)
		}
		<-warned
		if lease.Err() == nil {
			t.Error("warned before the lease is over")
		}
		_ = lease.Release()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slowly grants when it is told to, with a part of the TTL, and holds up its first
// renewal.
type slowly struct {
	driver.Driver
	grant, answer chan struct{}
	renewals      chan time.Duration
}

func (s *slowly) Info() driver.Info { return driver.Info{Name: "slow", Scope: driver.Fleet} }

func (s *slowly) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	select {
	case <-s.grant:
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	}
	g := driver.Grant{Key: r.Key, Token: r.Token, Fence: 1, Fences: r.Fences, TTL: r.TTL}
	g.Deadline = driver.Deadline(driver.Now(), r.TTL/3)
	return g, nil
}

func (s *slowly) Renew(_ context.Context, grants []driver.Grant) []driver.Renewal {
	var all []driver.Renewal
	for _, g := range grants {
		sent := driver.Now()
		select {
		case s.renewals <- g.TTL:
		default:
		}
		<-s.answer
		all = append(all, driver.Renewal{Deadline: driver.Deadline(sent, g.TTL)})
	}
	return all
}

// A grant that one waiter has requested is given to another one with a longer TTL.
// No renewal to the shorter TTL, which would put off the one to its own, comes
// first.
func TestAWaiterGetsItsOwnTTLFromTheFirstRenewalOn(t *testing.T) {
	d := &slowly{memory.NewLock(), make(chan struct{}), make(chan struct{}), make(chan time.Duration, 10)}
	l, err := New(d, Config{})
	if err != nil {
		t.Fatal(err)
	}
	first, cancel := context.WithCancel(t.Context())
	gaveUp, got := make(chan struct{}), make(chan *Lease, 1)
	go func() {
		defer close(gaveUp)
		_, _ = l.Acquire(first, "k", TTL(3*time.Second), Wait(Forever))
	}()
	waiting := func(n int64) {
		for l.counters.waiting.Load() < n {
			time.Sleep(time.Millisecond)
		}
	}
	waiting(1)
	go func() {
		lease, err := l.Acquire(t.Context(), "k", TTL(time.Minute), Wait(Forever))
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	waiting(2)
	cancel()
	<-gaveUp
	l.queues.mu.Lock() // the grant arrives, and its waiter is not found yet
	d.grant <- struct{}{}
	early := time.Duration(0)
	select {
	case early = <-d.renewals:
	case <-time.After(300 * time.Millisecond): // the first renewal is due after 100 ms
	}
	l.queues.mu.Unlock()
	lease := <-got
	close(d.answer)
	select {
	case ttl := <-d.renewals:
		if early != 0 || ttl != time.Minute {
			t.Errorf("renewed to %v and to %v, want 1m0s", early, ttl)
		}
	case <-lease.Context().Done():
		t.Errorf("the lease has ended: %v", context.Cause(lease.Context()))
	}
	_ = lease.Release()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
