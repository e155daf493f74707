package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/limit/limittest"
	lock "github.com/megaframework/mega/lock/driver"
)

// limiter opens limits that are closed with the test.
func limiter(t *testing.T, url string) *limit.Limiter {
	t.Helper()
	l, err := limit.New(openLimit(t, redis.Config{URL: url}), limit.Config{Cache: -1})
	must(t, err)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// fullCase is the name of a case in which releases succeed.
const fullCase = "full"

// unableToSave makes the server fail to save, as with a full disk, so that it
// refuses writes.
func unableToSave(s *redistest.Server) error {
	if err := os.Mkdir(filepath.Join(s.Dir(), "dump.rdb"), 0o700); err != nil { // in the way of the file
		return err
	}
	for _, c := range [][]any{{"CONFIG", "SET", "save", "3600 1"}, {"BGSAVE"}} {
		if _, err := s.Do(c...); err != nil {
			return err
		}
	}
	for end := time.Now().Add(generous(10 * time.Second)); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if info, err := s.Info("persistence"); err != nil || info["rdb_last_bgsave_status"] == "err" {
			return err
		}
	}
	return errors.New("the server has saved")
}

func byOutage(n int, o limit.Outage) limit.Limit {
	return limit.Limit{Rates: []limit.Rate{limit.PerHour(n)}, Outage: o}
}

// Each policy for outages, on a server that was there and cannot be used any
// more. W11
func TestOutagePoliciesHoldOnAServerThatBecomesUnusable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		spoil, mend func(*redistest.Server) error
	}{
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
		{"stopped", (*redistest.Server).Pause, (*redistest.Server).Continue},
		{"clients paused", command("CLIENT", "PAUSE", "60000", "WRITE"), command("CLIENT", "UNPAUSE")},
		{"read-only", command("REPLICAOF", "127.0.0.1", "1"), command("REPLICAOF", "NO", "ONE")},
		{"no replicas", command("CONFIG", "SET", "min-replicas-to-write", "1"), command("CONFIG", "SET", "min-replicas-to-write", "0")},
		{"unable to save", unableToSave, command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")},
		{fullCase, command("CONFIG", "SET", "maxmemory", "1"), command("CONFIG", "SET", "maxmemory", "0")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
			l := limiter(t, s.URL())
			permit, err := l.Wait(t.Context(), "closed", byOutage(4, limit.Closed))
			must(t, err)
			must(t, test.spoil(s))
			var calls sync.WaitGroup
			for _, ask := range []func() error{
				func() error { _, err := l.Allow(t.Context(), "closed", byOutage(4, limit.Closed)); return err },
				func() error { _, err := l.Wait(t.Context(), "closed", byOutage(4, limit.Closed)); return err },
				func() error {
					err := permit.Cancel(t.Context())
					if test.name == fullCase && err == nil { // it frees more than it takes
						return limit.ErrUnavailable
					}
					return err
				},
				func() error { return l.Pause(t.Context(), "closed", time.Hour, "test") },
			} {
				calls.Go(func() {
					start := time.Now()
					if err := ask(); !errors.Is(err, limit.ErrUnavailable) {
						t.Errorf("got %v, want %v", err, limit.ErrUnavailable)
					}
					if took := time.Since(start); timed && took > time.Second+slack {
						t.Errorf("failed after %v", took)
					}
				})
			}
			calls.Wait()
			for policy, want := range map[limit.Outage]int{limit.Open: 6, limit.Share(0.5): 2} {
				allowed := 0
				for range 6 {
					r, err := l.Allow(t.Context(), policy.String(), byOutage(4, policy))
					must(t, err)
					if !r.Degraded {
						t.Errorf("%v: %+v is not marked", policy, r)
					}
					if r.Allowed {
						allowed++
					}
				}
				if allowed != want {
					t.Errorf("%v: %d of 6 were allowed, want %d", policy, allowed, want)
				}
			}
			must(t, test.mend(s))
			eventually(t, "the end of the outage", func() bool { return l.Unavailable() == nil })
			if r, err := l.Allow(t.Context(), "after", byOutage(4, limit.Open)); err != nil || r.Degraded || r.Remaining != 3 {
				t.Errorf("got %+v, %v, want 3 units left", r, err)
			}
		})
	}
}

// A pause or a reset that the driver repeats may arrive again after calls that came
// later. The copy forgets no grant of theirs (W1) and pauses nothing (W13).
func TestLateCopiesOfAResetAndAPauseChangeNothing(t *testing.T) {
	t.Parallel()
	d, err := newYard(t, redis.EngineQueue).openLimit()
	must(t, err)
	t.Cleanup(func() { must(t, d.Close(context.Background())) })
	proxy := d.(limitProcess).proxy
	for _, used := range []bool{true, false} { // before the calls
		r := driver.Request{Key: token(), Rates: rates(1, time.Hour), Cost: 1}
		if used {
			_, err := d.Take(t.Context(), r)
			must(t, err)
		}
		paused, reset := proxy.ResetAfter(redistest.Named("pause")), proxy.ResetAfter(redistest.Named("reset"))
		must(t, d.Pause(t.Context(), r.Key, driver.Pause{Left: time.Minute, Reason: "why"}))
		must(t, d.Reset(t.Context(), r.Key))
		if a, err := d.Take(t.Context(), r); err != nil || !a.Granted {
			t.Fatalf("got %+v, %v, want a grant after the reset", a, err)
		}
		for name, copied := range map[string]*redistest.Fault{"pause": paused, "reset": reset} {
			if _, err := copied.Redeliver(); err != nil {
				t.Fatal(err)
			}
			if a, err := d.Take(t.Context(), r); err != nil || a.Granted || a.Paused != nil {
				t.Errorf("used %v, after a copy of the %s: got %+v, %v, want a refusal by the rate", used, name, a, err)
			}
		}
	}
}

// partsOf returns the names of the keys of a limit in Redis.
func partsOf(key string, rates []driver.Rate) []string {
	state := "mega:{" + key + "}:rate"
	parts := []string{state, state + ":tickets", state + ":queue", state + ":due"}
	for _, r := range rates {
		parts = append(parts, fmt.Sprint(state, ":", r.Per.Microseconds()))
	}
	return parts
}

// A limit of which somebody has overwritten a key is an error with a reason, and
// nothing hangs.
func TestWrongTypeInALimitIsATypedError(t *testing.T) {
	t.Parallel()
	w, all := newWard(t), rates(1, time.Hour)
	for i, part := range partsOf(w.key, all) {
		r := driver.Request{Key: w.key, Rates: all, Cost: 1, Ticket: "ticket", Seq: uint64(i + 1), MaxWait: -1}
		w.granted(w.ask(r))
		must(t, w.client.Del(t.Context(), part).Err())
		must(t, w.client.SAdd(t.Context(), part, "spoiled").Err())
		r.Seq, r.Ticket = uint64(i+1), "other"
		if a, err := w.Take(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: got %+v, %v, want an error with the reason", part, a, err)
		}
		must(t, w.client.Del(t.Context(), partsOf(w.key, all)...).Err())
	}
}

// A full server with an eviction policy deletes some keys of a limit. That
// forgets grants, as the driver warns, but nobody waits longer for it, and no
// script fails.
func TestLimitLivesOnWithoutOneOfItsKeys(t *testing.T) {
	t.Parallel()
	all := []driver.Rate{{N: 5, Per: 50 * time.Millisecond}, {N: 1000, Per: time.Second}}
	w, random := newWard(t), rand.New(rand.NewPCG(1, 2))
	var last driver.Answer
	for i := range uint64(suite.Scaled(600)) {
		w.pass(time.Duration(random.IntN(5)) * time.Millisecond)
		if random.IntN(4) == 0 {
			parts := partsOf(w.key, all)
			must(t, w.client.Del(t.Context(), parts[random.IntN(len(parts))]).Err())
		}
		r := driver.Request{Key: w.key, Rates: all, Cost: 1 + random.IntN(5), Smooth: random.IntN(5) == 0, MaxWait: -1}
		if random.IntN(2) == 0 {
			r.Ticket, r.Seq = fmt.Sprint("ticket", random.IntN(3)), i+1
		}
		switch random.IntN(8) {
		case 0:
			must(t, w.Withdraw(t.Context(), r))
		case 1:
			if last.Granted {
				must(t, w.Settle(t.Context(), driver.Settlement{Key: w.key, Rates: all, At: last.At, Cost: 3, Actual: random.IntN(6)}))
			}
		case 2:
			_, err := w.Inspect(t.Context(), w.key, nil)
			must(t, err)
		}
		if a := w.ask(r); a.Granted {
			last = a
		}
	}
	w.pass(2 * time.Second) // tickets that do not ask are dead
	w.granted(w.ask(driver.Request{Key: w.key, Rates: all, Cost: 5, Ticket: "new", Seq: 1, MaxWait: -1}))
}

// A lost key of the queue must not keep others waiting for tickets that do not
// ask any more, and leaves nobody without a place.
func TestQueueWithoutOneOfItsKeysServesEverybody(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"tickets", "queue", "due"} {
		w, all := newWard(t), rates(1, 100*time.Millisecond)
		ask := func(ticket string, seq uint64) driver.Answer {
			return w.ask(driver.Request{Key: w.key, Rates: all, Cost: 1, Ticket: ticket, Seq: seq, MaxWait: -1})
		}
		w.granted(ask("a", 1))
		ask("dead", 1)
		ask("b", 1)
		must(t, w.client.Del(t.Context(), "mega:{"+w.key+"}:rate:"+part).Err())
		seq, served := uint64(2), 0
		for range 200 { // a asks first, and wants unit after unit
			w.pass(20 * time.Millisecond)
			if ask("a", seq).Granted {
				seq++
			}
			if ask("b", 1).Granted {
				served++
				break
			}
		}
		if served == 0 || seq == 2 {
			t.Errorf("without %s: b was served %d times in 4 s, and a %d times", part, served, seq-2)
		}
	}
}

// Everything is lost while callers wait: they queue again.
func TestWaitersLiveThroughLostData(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	l, m := limiter(t, s.URL()), limit.Limit{Rates: []limit.Rate{{N: 1, Per: 300 * time.Millisecond}}}
	var calls sync.WaitGroup
	for range 6 {
		calls.Go(func() {
			_, err := l.Wait(t.Context(), "k", m)
			for errors.Is(err, limit.ErrUnavailable) { // the server got no processor for a second
				_, err = l.Wait(t.Context(), "k", m)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		calls.Wait()
		close(over)
	}()
	for lose := time.Tick(50 * time.Millisecond); ; { // calls succeed in between
		select {
		case <-over:
			return
		case <-lose:
			must(t, errors.Join(s.FlushAll(), s.ScriptFlush()))
		}
	}
}

// A failover that keeps what was acknowledged is an outage and no more: what was
// granted counts at the new master, waiters keep their place, and no window has
// too much. W1
func TestFailoverThatKeepsTheLimitLosesNothing(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, 1, redistest.Options{})
	a, b := limiter(t, set.URL()), limiter(t, set.URL())
	const n, per = 3, 2 * time.Second
	m := limit.Limit{Rates: []limit.Rate{{N: n, Per: per}, limit.PerDay(1000)}}
	var mu sync.Mutex
	var grants []limittest.Grant
	take := func(l *limit.Limiter) {
		for { // an outage of more than a second is an error, and the caller asks again
			p, err := l.Wait(t.Context(), "k", m)
			if errors.Is(err, limit.ErrUnavailable) {
				continue
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			grants = append(grants, limittest.Grant{From: p.At(), To: p.At(), Units: 1})
			return
		}
	}
	for range n {
		take(a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), failoverBound)
	defer cancel()
	must(t, set.Replicated(ctx))
	var waiters sync.WaitGroup
	for i := range 2 * n {
		waiters.Go(func() { take([]*limit.Limiter{a, b}[i%2]) })
	}
	must(t, set.Failover(ctx))
	waiters.Wait()
	mu.Lock()
	defer mu.Unlock()
	if worst, at := limittest.Worst(grants, per); worst > n {
		t.Errorf("%d units within %v from %v, want at most %d", worst, per, at, n)
	}
	s, err := b.Peek(t.Context(), "k", m)
	must(t, err)
	if used := s.Rates[1].Used; used < len(grants) {
		t.Errorf("the new master has %d units, want at least %d", used, len(grants))
	}
}

// L21: the error says what to do, also where a call cannot work on half of its keys.
func TestLimitsAndRunsInASlotThatIsBeingMovedNameTheMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, redistest.Options{})
	limits, locks := openLimit(t, redis.Config{URL: c.URL()}), open(t, redis.Config{URL: c.URL()})
	ask := driver.Request{Key: "k", Rates: rates(9, time.Hour), Cost: 1}
	run := func() error {
		g, err := locks.Acquire(t.Context(), request("k"))
		if err == nil {
			_, err = locks.(lock.Runner).BeginRun(t.Context(), g, time.Hour, true)
			err = errors.Join(err, locks.Release(t.Context(), g))
		}
		return err
	}
	calls := map[string]func() error{
		"take":    func() error { _, err := limits.Take(t.Context(), ask); return err },
		"inspect": func() error { _, err := limits.Inspect(t.Context(), "k", nil); return err },
		"run":     run,
	}
	check := func(when string, move *redistest.Move) {
		for name, call := range calls {
			moved := "is being moved from " + move.Source.Addr() + " to " + move.Target.Addr()
			soon(t, name+" "+when+", an error with "+moved, func() bool { // a busy machine may end the call before the reason comes
				err := call()
				if err == nil || !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, lock.ErrUnavailable) {
					t.Fatalf("%s, %s: %v, want an outage", when, name, err)
				}
				if contains(err, moved) && !contains(err, "redis-cli --cluster fix") {
					t.Errorf("%s, %s: %v, want an error with what to do", when, name, err)
				}
				return contains(err, moved)
			})
		}
	}
	move, err := c.OpenSlot("mega:{k}")
	must(t, err)
	check("without a key", move)
	must(t, move.Finish())
	for name, call := range calls {
		soon(t, name, func() bool { return call() == nil })
	}
	move, err = move.Back()
	must(t, err)
	must(t, move.MoveKeys("mega:{k}:run", "mega:{k}:rate"))
	check("with keys on both sides", move)
}
