package redis_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock/driver"
)

// do sends a command to the shared server.
func do(t testing.TB, args ...any) any {
	t.Helper()
	v, err := shared.Do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// queuing is an Acquire that waits.
type queuing struct {
	driver.Request
	grant  driver.Grant
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

// queueUp begins to wait and returns when the server has the ticket.
func queueUp(t testing.TB, d driver.Driver, r driver.Request) (q *queuing) {
	t.Helper()
	before := len(inspect(t, d, r.Key).Waiters)
	err := answered(func() error {
		ctx, cancel := context.WithCancel(t.Context())
		q = &queuing{Request: r, done: make(chan struct{}), cancel: cancel}
		q.Token = cmp.Or(q.Token, token())
		r.Token = "" // the clean-up of a call that fails bars it (L6)
		go func(q *queuing) {
			defer close(q.done)
			q.grant, q.err = d.Acquire(ctx, q.Request)
		}(q)
		t.Cleanup(func() { cancel(); <-q.done })
		soon(t, "the ticket to be queued", func() bool {
			return q.ended() || len(inspect(t, d, r.Key).Waiters) > before
		})
		if q.ended() {
			return q.err
		}
		return nil
	})
	if err != nil {
		t.Fatalf("the waiter got %v", err)
	}
	return q
}

// ended reports whether the call has ended.
func (q *queuing) ended() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// granted waits for the grant.
func (q *queuing) granted(t testing.TB, within time.Duration) driver.Grant {
	t.Helper()
	select {
	case <-q.done:
	case <-time.After(generous(within)):
		t.Fatalf("not granted within %v", within)
	}
	if q.err != nil {
		t.Fatalf("the waiter got %v", q.err)
	}
	return q.grant
}

func inspect(t testing.TB, d driver.Driver, key string) driver.State {
	t.Helper()
	var s driver.State
	err := answered(func() (err error) {
		s, err = d.Inspect(t.Context(), key)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ghost puts a ticket into the queue whose process is dead: its inbox has no
// subscriber, and its last beat was so long ago.
func ghost(t testing.TB, key string, age time.Duration) string {
	t.Helper()
	ticket := token()
	answered := time.Now().Add(-age).UnixMilli()
	do(t, "ZADD", "mega:{"+key+"}:order", answered*1000, ticket)
	do(t, "ZADD", "mega:{"+key+"}:due", answered+2000, ticket)
	do(t, "HSET", "mega:{"+key+"}:state", ticket, `3 1 1 nobody - - - - - ghost`)
	return ticket
}

func hasPlace(t testing.TB, key, ticket string) bool {
	t.Helper()
	return do(t, "ZSCORE", "mega:{"+key+"}:order", ticket) != nil
}

func TestTicketWithoutASubscriberIsRemoved(t *testing.T) {
	d := openShared(t)
	held := acquire(t, d, request(t.Name()))
	dead := ghost(t, t.Name(), 0)
	next := queueUp(t, d, request(t.Name()))
	start := time.Now()
	release(t, d, held)
	release(t, d, next.granted(t, noWindow))
	if hasPlace(t, t.Name(), dead) {
		t.Error("the ticket is still queued")
	}
	t.Logf("served in %v", time.Since(start))
}

func TestTicketWithoutAHeartbeatIsRemoved(t *testing.T) {
	t.Parallel()
	d := openShared(t)
	held := acquire(t, d, request(t.Name()))
	dead := ghost(t, t.Name(), 3*time.Second)
	next := queueUp(t, d, request(t.Name()))
	soon(t, "the ticket to be removed", func() bool { return !hasPlace(t, t.Name(), dead) })
	release(t, d, held)
	release(t, d, next.granted(t, slack))
}

func TestManyDeadTicketsCostTheNextOneNothing(t *testing.T) {
	d := openShared(t)
	held := acquire(t, d, request(t.Name()))
	for range suite.Scaled(500) {
		ghost(t, t.Name(), 3*time.Second)
	}
	next := queueUp(t, d, request(t.Name()))
	start := time.Now()
	release(t, d, held)
	release(t, d, next.granted(t, slack))
	t.Logf("served in %v", time.Since(start))
}

func TestTicketWithoutARecordIsRemoved(t *testing.T) {
	d := openShared(t)
	held := acquire(t, d, request(t.Name()))
	do(t, "ZADD", "mega:{"+t.Name()+"}:order", 1, "orphan")
	next := queueUp(t, d, request(t.Name()))
	release(t, d, held)
	release(t, d, next.granted(t, slack))
	if hasPlace(t, t.Name(), "orphan") {
		t.Error("it is still queued")
	}
}

// A lock whose queue or pool is kept in another format is unavailable, and the
// error names both formats. L24
func TestOtherFormatIsAnErrorThatNamesBoth(t *testing.T) {
	d := openShared(t)
	names := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrUnavailable) || !contains(err, "format 9") || !contains(err, "format 3") {
			t.Errorf("%s: %v, want %v with both formats", what, err, driver.ErrUnavailable)
		}
	}
	held := acquire(t, d, request(t.Name()))
	do(t, "ZADD", "mega:{"+t.Name()+"}:order", 1, "newer")
	do(t, "HSET", "mega:{"+t.Name()+"}:state", "newer", "9 something else")
	release(t, d, held)
	_, err := d.Acquire(t.Context(), request(t.Name()))
	names("ticket", err)
	if !hasPlace(t, t.Name(), "newer") {
		t.Error("a ticket that another version can read was removed")
	}
	do(t, "DEL", "mega:{"+t.Name()+"}:order")
	do(t, "HSET", "mega:{"+t.Name()+"}:state", "pool", "9 something else")
	_, err = d.Acquire(t.Context(), request(t.Name()))
	names("pool", err)
	do(t, "DEL", "mega:{"+t.Name()+"}:state")
}

// A lease that another version has written keeps others out and is not taken away,
// and the error names both formats. L24
func TestLeaseInAnotherFormatIsNotTouched(t *testing.T) {
	d := openShared(t)
	for text, version := range map[string]string{token() + `{"v":2,"fence":5,"span":1}`: "format 2", token() + " 9 5 1 0 x": "format 9"} {
		key := t.Name() + version[len(version)-1:]
		do(t, "SET", "mega:{"+key+"}", text, "PX", 60_000)
		_, forced := d.ForceRelease(t.Context(), key, driver.Force{Reason: "test"})
		_, shown := d.Inspect(t.Context(), key)
		for what, err := range map[string]error{"ForceRelease": forced, "Inspect": shown} {
			if !errors.Is(err, driver.ErrUnavailable) || !contains(err, version) || !contains(err, "format 3") {
				t.Errorf("%s: %s: %v, want %v with both formats", text, what, err, driver.ErrUnavailable)
			}
		}
		r := request(key)
		r.Wait = 0
		if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: Acquire: %v, want %v", text, err, driver.ErrNotAcquired)
		}
		if got := do(t, "GETDEL", "mega:{"+key+"}"); got != text {
			t.Errorf("%s became %v", text, got)
		}
		do(t, "DEL", "mega:{"+key+"}:state", "mega:{"+key+"}:order", "mega:{"+key+"}:due")
	}
}

// Whoever calls first after a holder has expired serves the queue: here a call
// that asks for nothing.
func TestAnyCallServesTheQueueOfAnExpiredHolder(t *testing.T) {
	calls := map[string]func(d driver.Driver, key string) error{
		"try": func(d driver.Driver, key string) error {
			r := request(key)
			r.Wait = 0
			if _, err := d.Acquire(context.Background(), r); !errors.Is(err, driver.ErrNotAcquired) {
				return fmt.Errorf("a newcomer got %w", err)
			}
			return nil
		},
		"stale release": func(d driver.Driver, key string) error {
			if err := d.Release(context.Background(), driver.Grant{Key: key, Token: token()}); !errors.Is(err, driver.ErrLost) {
				return fmt.Errorf("a stale release got %w", err)
			}
			return nil
		},
		"force": func(d driver.Driver, key string) error {
			n, err := d.ForceRelease(context.Background(), key, driver.Force{Reason: "test"})
			if n != 0 {
				return fmt.Errorf("forced %d", n)
			}
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			d, other := openShared(t), openShared(t)
			acquire(t, d, request(t.Name()))
			next := queueUp(t, d, request(t.Name()))
			do(t, "DEL", "mega:{"+t.Name()+"}") // as if it had expired
			if err := call(other, t.Name()); err != nil {
				t.Error(err)
			}
			if s := inspect(t, other, t.Name()); len(s.Waiters) != 0 {
				t.Errorf("the queue is still %+v", s.Waiters)
			}
			release(t, d, next.granted(t, slack))
		})
	}
}

func TestExpiredHolderIsSucceededAtOnce(t *testing.T) {
	d := openShared(t)
	r := request(t.Name())
	r.TTL = 300 * time.Millisecond
	late, n := 0, 6
	for range n {
		start := time.Now()
		acquire(t, d, r)
		next := queueUp(t, d, request(t.Name()))
		g := next.granted(t, r.TTL+slack)
		if took := time.Since(start); took > r.TTL+100*time.Millisecond {
			late++
			t.Logf("it was succeeded after %v, its TTL is %v", took, r.TTL)
		}
		release(t, d, g)
	}
	if timed && late > n/2 { // the heartbeats alone are late nearly always
		t.Errorf("%d of %d waiters were served more than 100 ms after the expiry", late, n)
	}
}

func TestLostTicketIsQueuedAgainWithItsNumber(t *testing.T) {
	t.Parallel()
	a, b := openShared(t), openShared(t)
	held := acquire(t, a, request(t.Name()))
	first, second := queueUp(t, a, request(t.Name())), queueUp(t, b, request(t.Name()))
	number := do(t, "ZSCORE", "mega:{"+t.Name()+"}:order", first.Token)
	do(t, "ZREM", "mega:{"+t.Name()+"}:order", first.Token)
	do(t, "HDEL", "mega:{"+t.Name()+"}:state", first.Token)
	soon(t, "a beat to bring the ticket back", func() bool { return hasPlace(t, t.Name(), first.Token) })
	if got := do(t, "ZSCORE", "mega:{"+t.Name()+"}:order", first.Token); got != number {
		t.Errorf("its number is %v, and was %v", got, number)
	}
	release(t, a, held)
	release(t, a, first.granted(t, slack))
	release(t, b, second.granted(t, slack))
}

func TestQueueIsInOrderWhateverTheClock(t *testing.T) {
	d := openShared(t)
	held := acquire(t, d, request(t.Name()))
	first := queueUp(t, d, request(t.Name()))
	// As if the clock of the server had been an hour ahead at that time.
	ahead := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	do(t, "ZADD", "mega:{"+t.Name()+"}:order", ahead, first.Token)
	second := queueUp(t, d, request(t.Name()))
	release(t, d, held)
	release(t, d, first.granted(t, slack))
	release(t, d, second.granted(t, slack))
}

func TestNothingStaysBehindForEver(t *testing.T) {
	d := openShared(t)
	pool := request(t.Name())
	pool.Slots = 3
	a := acquire(t, d, pool)
	pool.Token = token()
	b := acquire(t, d, pool)
	pool.Token = token()
	c := acquire(t, d, pool)
	pool.Token = token()
	next := queueUp(t, d, pool)
	release(t, d, b)
	b = next.granted(t, slack)
	if _, err := d.ForceRelease(t.Context(), t.Name(), driver.Force{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, g := range []driver.Grant{a, b, c} {
		if err := d.Release(t.Context(), g); !errors.Is(err, driver.ErrLost) {
			t.Errorf("release after force: %v", err)
		}
	}
	for _, key := range do(t, "KEYS", "mega:{"+t.Name()+"}*").([]any) {
		if ttl := do(t, "PTTL", key).(int64); ttl < 0 || ttl > (2*time.Minute).Milliseconds() {
			t.Errorf("%s lives for another %d ms", key, ttl)
		}
	}
}

// Both ways into the queue of a plain lock leave the same data, serve in the same
// order, and leave nothing behind.
func TestShortWayIntoTheQueueEqualsTheLongOne(t *testing.T) {
	const condition, answer = `if ARGV[4] == '1' and ARGV[3] == '1'`, `return {2, at, position, left, 0}`
	for _, short := range []bool{true, false} {
		t.Run(fmt.Sprintf("short %v", short), func(t *testing.T) {
			key := t.Name() + token()
			ways := "ways of " + key
			d := open(t, redis.Edited(redis.Config{URL: shared.URL()}, func(source string) string {
				if !short {
					source = strings.ReplaceAll(source, condition, "if false")
				}
				return strings.ReplaceAll(source, answer, "call('incr', '"+ways+"') "+answer)
			}))
			held := acquire(t, d, request(key))
			var all []*queuing
			for len(all) < 3 || short && len(all) < 100 && do(t, "GET", ways) == nil { // a slow machine needs more tries
				all = append(all, queueUp(t, d, request(key)))
			}
			if taken := do(t, "GET", ways) != nil; taken != short {
				t.Fatalf("the fast path was taken: %v", taken)
			}
			for part, count := range map[string][]any{"state": {"HLEN"}, "order": {"ZCARD"}, "due": {"ZCOUNT", 1, 1e14}} { // not seen and since
				name := "mega:{" + key + "}:" + part
				if n := do(t, slices.Insert(count, 1, any(name))...); n != int64(len(all)) {
					t.Errorf("%s has %v entries for %d waiters", part, n, len(all))
				}
				if life := do(t, "PTTL", name).(int64); life < 10_000 || life > 60_000 {
					t.Errorf("%s lives for %d ms", part, life)
				}
			}
			for i, q := range all {
				release(t, d, held)
				held = q.granted(t, slack)
				if i > 0 && held.Fence <= all[i-1].grant.Fence {
					t.Errorf("fence %d after %d", held.Fence, all[i-1].grant.Fence)
				}
			}
			release(t, d, held)
			if n := do(t, "EXISTS", "mega:{"+key+"}", "mega:{"+key+"}:state", "mega:{"+key+"}:order"); n != int64(0) {
				t.Errorf("%v keys are left", n)
			}
		})
	}
}
