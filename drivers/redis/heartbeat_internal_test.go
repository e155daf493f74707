package redis

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// beats runs a heartbeater on fake time while fn schedules heartbeats, and returns
// when they came. Each takes took, and asks for the next one after next.
func beats(t *testing.T, took, next time.Duration, fn func(b *heartbeater)) (at []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, end := context.WithCancel(t.Context())
		b := newHeartbeater(func(context.Context) time.Duration {
			at = append(at, time.Since(start))
			time.Sleep(took)
			return next
		})
		b.start(ctx)
		fn(b)
		time.Sleep(time.Second)
		end()
		b.wait()
	})
	return at
}

func TestHeartbeatComesAtTheEarliestTime(t *testing.T) {
	at := beats(t, 0, 0, func(b *heartbeater) {
		b.within(600 * time.Millisecond)
		b.within(20 * time.Millisecond)
		b.within(700 * time.Millisecond)
	})
	if want := []time.Duration{20 * time.Millisecond}; !slices.Equal(at, want) {
		t.Errorf("heartbeats at %v, want %v", at, want)
	}
}

func TestHeartbeatsGoOnWhileThereAreTickets(t *testing.T) {
	at := beats(t, 100*time.Millisecond, 250*time.Millisecond, func(b *heartbeater) { b.within(200 * time.Millisecond) })
	if want := []time.Duration{200 * time.Millisecond, 550 * time.Millisecond, 900 * time.Millisecond}; !slices.Equal(at, want) {
		t.Errorf("heartbeats at %v, want %v", at, want)
	}
}

// A ticket that comes while a heartbeat is being sent may not be in it.
func TestTicketDuringAHeartbeatHasOneOfItsOwn(t *testing.T) {
	at := beats(t, 100*time.Millisecond, 0, func(b *heartbeater) {
		b.within(200 * time.Millisecond)
		time.Sleep(250 * time.Millisecond)
		b.within(150 * time.Millisecond)
	})
	if want := []time.Duration{200 * time.Millisecond, 400 * time.Millisecond}; !slices.Equal(at, want) {
		t.Errorf("heartbeats at %v, want %v", at, want)
	}
}

// A process without waiters has no other heartbeat that would check again.
func TestACheckOfTheSubscriptionWithoutAnAnswerIsRepeated(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	d, err := OpenLock(t.Context(), Config{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	q := d.(*queue)
	if next := q.sendAll(t.Context()); next != 0 {
		t.Fatalf("a heartbeat without a reason comes after %v", next)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	q.suspect.Store(true)
	if next := q.sendAll(t.Context()); next <= 0 {
		t.Error("the check is not repeated")
	}
	if err := s.Continue(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); q.sendAll(t.Context()) != 0; {
		if time.Now().After(end) {
			t.Fatal("the check never succeeds")
		}
	}
}

// L9: a heartbeat that finds grants whose pushes were lost delivers all of them before
// it checks the subscription, because that takes a while if it is half open.
func TestGrantsDoNotWaitForTheCheckOfTheSubscription(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	opened := func() *queue {
		d, err := OpenLock(t.Context(), Config{URL: s.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close(context.Background()) })
		return d.(*queue)
	}
	holder, waiter := opened(), opened()
	waiter.cancel() // the test sends the heartbeats
	waiter.heartbeater.wait()
	var held []driver.Grant
	for _, key := range []string{"a", "b"} {
		r := driver.Request{Key: key, Token: newID(), TTL: time.Minute, Slots: 1, Fences: 1}
		g, err := holder.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, g)
		r.Token, r.Wait = key, -1
		_, wait, err := waiter.Ask(t.Context(), r)
		if err != nil || wait == nil {
			t.Fatalf("%q is not queued: %v", key, err)
		}
		t.Cleanup(func() {
			ended, end := context.WithCancel(context.Background())
			end()
			_, _ = wait(ended)
		})
	}
	// As at a server that still counts a subscription that is half open.
	other := waiter.inbox.client.Subscribe(t.Context(), waiter.inbox.name)
	defer func() { _ = other.Close() }()
	if _, err := other.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiter.inbox.drain()
	for _, g := range held {
		if err := holder.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	waiter.inbox.mu.Lock() // the subscription is not replaced
	var beat sync.WaitGroup
	defer beat.Wait()
	defer waiter.inbox.mu.Unlock()
	beat.Go(func() { waiter.sendAll(context.Background()) })
	granted := func(key string) bool {
		waiter.claims.mu.Lock()
		defer waiter.claims.mu.Unlock()
		return waiter.claims.byToken[key].award != nil
	}
	for end := time.Now().Add(30 * time.Second); !granted("a") || !granted("b"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a grant waits for the subscription")
		}
	}
}

// mostGoroutines returns how many goroutines more than before there are while fn runs.
func mostGoroutines(fn func()) (most int) {
	before := runtime.NumGoroutine()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	for {
		select {
		case <-done:
			return most
		case <-time.After(time.Millisecond):
			most = max(most, runtime.NumGoroutine()-before)
		}
	}
}

// L10: more tickets that the server has lost do not mean more goroutines.
func TestTicketsAreQueuedAgainByAFewGoroutines(t *testing.T) { // not parallel: it counts goroutines
	const tickets, few = 1_500, 160
	s := redistest.Start(t, redistest.Options{})
	p := redistest.StartProxy(t, s, nil)
	d, err := OpenLock(t.Context(), Config{URL: p.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	q := d.(*queue)
	q.cancel() // the test sends the heartbeats
	q.heartbeater.wait()
	ended, end := context.WithCancel(t.Context())
	end()
	for range tickets + 1 {
		_, wait, err := q.Ask(t.Context(), driver.Request{Key: "k", Token: newID(), TTL: time.Minute, Wait: -1, Slots: 1, Fences: 1})
		if err != nil {
			t.Fatal(err)
		}
		if wait != nil { // not the holder
			defer func() { _, _ = wait(ended) }()
		}
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	p.Delay(redistest.Requests, 20*time.Millisecond)
	most := mostGoroutines(func() { q.sendAll(t.Context()) })
	p.Heal()
	if most > few {
		t.Errorf("%d goroutines for %d tickets, want at most %d", most, tickets, few)
	}
}

// L10: heartbeats and renewals of more keys on a Cluster do not mean more goroutines.
// L7: tickets at the other masters have their heartbeats while one master hangs.
func TestManyKeysOfAClusterTakeAFewGoroutines(t *testing.T) { // not parallel: it counts goroutines
	const keys, masters, few = 1_500, 3, 3*wire.InFlight + 32
	c := redistest.StartCluster(t, masters, redistest.Options{})
	d, err := OpenLock(t.Context(), Config{URL: c.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	q := d.(*queue)
	q.cancel() // the test sends the heartbeats
	q.heartbeater.wait()
	ended, end := context.WithCancel(t.Context())
	end()
	var held []driver.Grant
	for i := range keys {
		r := driver.Request{Key: strconv.Itoa(i), Token: newID(), TTL: time.Minute, Slots: 1, Fences: 1}
		g, err := q.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, g)
		r.Token, r.Wait = newID(), -1
		_, wait, err := q.Ask(t.Context(), r)
		if err != nil || wait == nil {
			t.Fatalf("key %d is not queued: %v", i, err)
		}
		defer func() { _, _ = wait(ended) }()
	}
	stopped := c.Servers()[0]
	if err := stopped.Pause(); err != nil {
		t.Fatal(err)
	}
	began := driver.Now()
	if most := mostGoroutines(func() { q.sendAll(t.Context()) }); most > few {
		t.Errorf("%d goroutines for the heartbeats of %d keys, want at most %d", most, keys, few)
	}
	if took := driver.Now().Sub(began); took > stale {
		t.Errorf("the heartbeats have taken %v: those of the other masters come too late", took)
	}
	if n := q.claims.confirmedSince(began); n < keys/2 {
		t.Errorf("%d of %d tickets had a heartbeat, want those of %d of %d masters", n, keys, masters-1, masters)
	}
	if err := stopped.Continue(); err != nil {
		t.Fatal(err)
	}
	if most := mostGoroutines(func() { q.Renew(t.Context(), held) }); most > few {
		t.Errorf("%d goroutines for the renewals of %d keys, want at most %d", most, keys, few)
	}
}

// confirmedSince returns the number of tickets that a call after began has found.
func (cs *claims) confirmedSince(began time.Time) (n int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.waiting {
		if c.queuedAt.After(began) {
			n++
		}
	}
	return n
}
