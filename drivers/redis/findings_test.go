package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	limit "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

// L7: a server that stands still for longer than a heartbeat may be late takes
// nobody's place, and lets nobody overtake.
func TestStalledServerKeepsTheOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	var drivers []driver.Driver
	for range 4 {
		drivers = append(drivers, open(t, redis.Config{URL: s.URL()}))
	}
	long := request("k")
	long.TTL = time.Minute
	held := acquire(t, drivers[0], long)
	var queue []*queuing
	for _, d := range drivers[:3] {
		queue = append(queue, queueUp(t, d, request("k")))
	}
	must(t, s.Pause())
	time.Sleep(2700 * time.Millisecond) // L7 is about a stall of more than 2 s
	newcomer := make(chan driver.Grant, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			g, err := drivers[3].Acquire(t.Context(), request("k"))
			if !errors.Is(err, driver.ErrUnavailable) {
				newcomer <- g
				return
			}
		}
	})
	must(t, s.Continue())
	eventually(t, "the release", func() bool { return drivers[0].Release(t.Context(), held) == nil })
	for i, q := range queue {
		g := q.granted(t, 2*slack)
		select {
		case <-newcomer:
			t.Fatalf("a newcomer overtook waiter %d", i)
		default:
		}
		for _, later := range queue[i+1:] {
			select {
			case <-later.done:
				t.Fatalf("a later waiter was served before waiter %d", i)
			default:
			}
		}
		release(t, drivers[i], g)
	}
	release(t, drivers[3], <-newcomer)
	asking.Wait()
}

// L21: a server that is full serves its queues, from heartbeats too.
func TestFullServerServesItsQueues(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	a, b, c := open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()})
	short := request("k")
	short.TTL, short.NoRenew = 3*time.Second, true
	acquire(t, a, short) // it expires
	first, second := queueUp(t, b, request("k")), queueUp(t, c, request("k"))
	must(t, command("CONFIG", "SET", "maxmemory", "1")(s))
	release(t, b, first.granted(t, 4*time.Second)) // longer than a heartbeat may be late
	release(t, c, second.granted(t, slack))
	refuses(t, "OOM", func() error { _, err := a.Acquire(t.Context(), request("k")); return err })
}

// L8: each dead ticket costs once, and a call removes few of them.
func TestManyDeadTicketsCostEachCallLittle(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	d, other := open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()})
	held := acquire(t, d, request("k"))
	dead := int64(min(max(300, suite.Scaled(9_000)), driver.MaxTickets-100)) // a full queue takes no more waiters
	for from := int64(0); from < dead; from += 100 {
		order, due, state := []any{"ZADD", "mega:{k}:order"}, []any{"ZADD", "mega:{k}:due"}, []any{"HSET", "mega:{k}:state"}
		for i := from; i < from+100; i++ {
			ticket := fmt.Sprintf("dead%018d", i)
			order, due = append(order, i, ticket), append(due, time.Now().UnixMilli()-1000, ticket)
			state = append(state, ticket, fmt.Sprintf(`3 1 1 nobody%d`, i))
		}
		for _, c := range [][]any{order, due, state} {
			must(t, command(c...)(s))
		}
	}
	must(t, s.ResetCommands())
	got := make(chan driver.Grant)
	go func() {
		g, err := other.Acquire(t.Context(), request("k"))
		if err != nil {
			t.Error(err)
		}
		got <- g
	}()
	soon(t, "the waiter to queue", func() bool { return redis.Queued(other, "k") == 1 })
	start := time.Now()
	release(t, d, held)
	g := <-got
	if took := time.Since(start); timed && took > 2*time.Second+slack {
		t.Errorf("%d dead tickets delayed the next waiter by %v", dead, took)
	}
	t.Logf("%d dead tickets delayed the next waiter by %v", dead, time.Since(start))
	soon(t, "the dead tickets to be removed", func() bool {
		n, err := s.Do("ZCARD", "mega:{k}:order")
		return err == nil && n == int64(0)
	})
	info, err := s.Info("commandstats")
	must(t, err)
	t.Log(info["cmdstat_evalsha"])
	calls, err := s.Commands()
	must(t, err)
	if removals := calls["hdel"]; int64(removals) > 3*dead {
		t.Errorf("%d tickets took %d removals", dead, removals)
	}
	release(t, other, g)
}

// L10: a queue has room for 10 000 tickets.
func TestFullQueueHasItsOwnError(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	d := open(t, redis.Config{URL: s.URL()})
	held := acquire(t, d, request("k"))
	for from := 0; from < driver.MaxTickets; from += 500 {
		order := []any{"ZADD", "mega:{k}:order"}
		for i := range 500 {
			order = append(order, from+i, fmt.Sprintf("full%018d", from+i))
		}
		must(t, command(order...)(s))
	}
	_, err := d.Acquire(t.Context(), request("k"))
	var busy *driver.NotAcquiredError
	if !errors.As(err, &busy) || !busy.Full || len(busy.Holders) != 1 || busy.Holders[0].Fence != held.Fence || busy.Holders[0].Left <= 0 {
		t.Errorf("the queue is full: got %v", err)
	}
	release(t, d, held)
}

// L15: the size of a pool is kept although only its first slot is held.
func TestRenewalKeepsTheSizeOfThePool(t *testing.T) {
	d := openShared(t)
	g := acquire(t, d, seat(t.Name(), 3))
	do(t, "PEXPIRE", "mega:{"+t.Name()+"}:state", 5000)
	renew(t, d, g)
	if left := do(t, "PTTL", "mega:{"+t.Name()+"}:state").(int64); left < 60_000 {
		t.Errorf("the size is forgotten in %d ms, and slot 0 is held", left)
	}
	release(t, d, g)
}

// P11: a waiter learns when a slot becomes free earlier than it was told.
func TestSlotThatExpiresIsGivenAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	a, b := open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()})
	late, n := 0, max(6, suite.Scaled(30))
	for i := range n {
		key := fmt.Sprint("k", i)
		long := acquire(t, a, seat(key, 2))
		short := acquire(t, a, seat(key, 2))
		next := queueUp(t, b, seat(key, 2))
		short.TTL, short.Rev = time.Duration(100+pick(200))*time.Millisecond, 1 // Extend, and a crash
		start := time.Now()
		renew(t, a, short)
		g := next.granted(t, slack)
		if wait := time.Since(start) - short.TTL; wait > 50*time.Millisecond {
			late++
			t.Logf("served %v after the expiry", wait)
		}
		release(t, b, g)
		release(t, a, long)
	}
	if timed && late > n/2 { // the heartbeats alone are late nearly always
		t.Errorf("%d of %d waiters were served more than 50 ms after the expiry", late, n)
	}
}

// L16, L23: data of others is skipped, named, and never deleted.
func TestForeignDataIsSkippedAndNeverForced(t *testing.T) {
	for _, template := range []string{redis.DefaultKey, "%s"} {
		s := redistest.Start(t, redistest.Options{})
		d := open(t, redis.Config{URL: s.URL(), Key: template})
		g := acquire(t, d, request("held"))
		name := func(key string) string { return strings.Replace(template, "%s", key, 1) }
		values := map[string][]any{
			"session": {"SET", name("session"), "0123456789abcdef0123456789abcdef", "PX", 60_000},
			"text":    {"SET", name("text"), "a string"},
			"token":   {"SET", name("token"), "0123456789abcdef012345"}, // as a token, but it does not expire
			"list":    {"LPUSH", name("list"), "x"},
			"beside":  {"LPUSH", name("beside") + map[bool]string{true: ":state", false: " state"}[template == redis.DefaultKey], "x"},
		}
		for _, v := range values {
			must(t, command(v...)(s))
		}
		states, err := d.List(t.Context(), "")
		must(t, err)
		skipped := map[string]string{}
		for _, state := range states {
			if state.Skipped != "" {
				skipped[state.Key] = state.Skipped
			} else if state.Key != "held" || len(state.Holders) != 1 {
				t.Errorf("%q: listed %+v", template, state)
			}
		}
		for key := range values {
			if skipped[key] == "" {
				t.Errorf("%q: %s is not named as skipped: %v", template, key, skipped)
			}
			if state, err := d.Inspect(t.Context(), key); err != nil || state.Skipped == "" || len(state.Holders) > 0 {
				t.Errorf("%q: inspect %s: %+v, %v", template, key, state, err)
			}
			if n, err := d.ForceRelease(t.Context(), key, driver.Force{Reason: "test"}); err == nil {
				t.Errorf("%q: forced %d at %s", template, n, key)
			}
			if n, err := s.Do("EXISTS", values[key][1]); n != int64(1) || err != nil {
				t.Errorf("%q: %s is gone", template, key)
			}
		}
		release(t, d, g)
	}
}

// L23: a script that fails at the data of one key does not hide the other keys.
func TestForeignMembersHideNoOtherKey(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	d, limits := open(t, redis.Config{URL: s.URL()}), openLimit(t, redis.Config{URL: s.URL()})
	for _, key := range []string{"other", "spoiled"} {
		acquire(t, d, box(key, 2))
		if _, err := limits.Take(t.Context(), limit.Request{Key: key, Rates: rates(1, time.Minute), Cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	must(t, errors.Join(command("ZADD", "mega:{spoiled}:slots", 1, "x")(s), command("HSET", "mega:{spoiled}:rate", "60000000", "x")(s)))
	locks, err := d.List(t.Context(), "")
	must(t, err)
	all, err := limits.List(t.Context(), "")
	must(t, err)
	if len(locks) != 2 || len(locks[0].Holders) != 1 || locks[1].Skipped == "" {
		t.Errorf("the locks are %+v", locks)
	}
	if len(all) != 2 || len(all[0].Rates) != 1 || all[1].Skipped == "" {
		t.Errorf("the limits are %+v", all)
	}
	if state, err := d.Inspect(t.Context(), "spoiled"); err != nil || state.Skipped == "" {
		t.Errorf("inspect: %+v, %v", state, err)
	}
}

// L16, L23: what the engine redislock has obtained is a lease before its fences are
// written, too. If its process has died in between, an operator can see and force it.
func TestALeaseWithoutFencesIsShownAndForced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	near := open(t, redis.Config{URL: r.server.URL()})
	far := open(t, redis.Config{URL: r.proxy.URL(), Engine: redis.EngineRedislock})
	stamp := r.proxy.HoldRequest(redistest.Named("stamp"))
	defer stamp.Release()
	obtained := make(chan error, 1)
	go func() {
		_, err := far.Acquire(t.Context(), request("k"))
		obtained <- err
	}()
	<-stamp.Hit()
	if state := inspect(t, near, "k"); state.Skipped != "" || len(state.Holders) != 1 {
		t.Errorf("inspected %+v", state)
	}
	states, err := near.List(t.Context(), "")
	must(t, err)
	if len(states) != 1 || states[0].Skipped != "" || len(states[0].Holders) != 1 {
		t.Errorf("listed %+v", states)
	}
	if n, err := near.ForceRelease(t.Context(), "k", driver.Force{Reason: "test"}); n != 1 || err != nil {
		t.Errorf("forced %d, %v", n, err)
	}
	g := acquire(t, near, request("k"))
	stamp.Release()
	release(t, near, g)
	<-obtained
}

// L23: what an operator looks at keeps nobody waiting.
func TestListDelaysNoHeartbeat(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	must(t, command("DEBUG", "POPULATE", 120_000, "other", 8)(s))
	p := redistest.StartProxy(t, s, redistest.FirstWord)
	near, far := open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: p.URL()})
	for range 120 { // a server with many keys, a long way off
		p.DelayReply(redistest.Named("SCAN"), 150*time.Millisecond) // an attempt has 450
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listed := make(chan error, 1)
	go func() {
		_, err := far.List(ctx, "")
		listed <- err
	}()
	for i := range 3 {
		key := fmt.Sprint("k", i)
		acquire(t, near, request(key))
		next := queueUp(t, far, request(key))
		must(t, command("DEL", "mega:{"+key+"}")(s)) // only a heartbeat finds that
		release(t, far, next.granted(t, slack))
	}
	select {
	case err := <-listed:
		t.Errorf("the list was too quick to delay anything: %v", err)
	default:
	}
	cancel()
	<-listed
}

// L23: neither Inspect nor List writes.
func TestLookingChangesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
	d := open(t, redis.Config{URL: s.URL()})
	g := acquire(t, d, seat("k", 2))
	must(t, command("ZADD", "mega:{k}:slots", 10_000_000_001, 1)(s)) // a slot that has expired
	must(t, command("ZADD", "mega:{k}:order", 1, "x")(s))
	changes := func() string {
		info, err := s.Info("persistence")
		must(t, err)
		return info["rdb_changes_since_last_save"]
	}
	before := changes()
	inspect(t, d, "k")
	_, err := d.List(t.Context(), "")
	must(t, err)
	if after := changes(); after != before {
		t.Errorf("%s changes before, %s after", before, after)
	}
	must(t, command("ZREM", "mega:{k}:order", "x")(s))
	release(t, d, g)
}

// L24: a namespace is a part of every key.
func TestNamespacesDoNotMeet(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	var all []driver.Driver
	for _, namespace := range []string{"", "staging", "prod"} {
		for _, template := range []string{redis.DefaultKey, "lock:%s"} {
			all = append(all, open(t, redis.Config{URL: s.URL(), Namespace: namespace, Key: template}))
		}
	}
	for i, d := range all {
		r := request("k")
		r.Wait = 0
		acquire(t, d, r)
		if states, err := d.List(t.Context(), ""); err != nil || len(states) != 1 {
			t.Errorf("driver %d lists %+v, %v", i, states, err)
		}
	}
	for _, namespace := range []string{"a b", "a:b", "{a}", "%s", strings.Repeat("x", 65)} {
		if _, err := redis.OpenLock(t.Context(), redis.Config{URL: s.URL(), Namespace: namespace}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("namespace %q: %v, want %v", namespace, err, driver.ErrInvalid)
		}
	}
}

func TestClientThatSendsAgainIsWarnedOf(t *testing.T) {
	o, err := goredis.ParseURL(shared.URL())
	must(t, err)
	client := goredis.NewClient(o)
	defer func() { must(t, client.Close()) }()
	warned(t, open(t, redis.Config{Client: client}), "MaxRetries")
	if lacks := openLimit(t, redis.Config{Client: client}).Info().Lacks; len(lacks) != 1 || lacks[0].Rule != "W3" || !strings.Contains(lacks[0].Why, "MaxRetries") {
		t.Errorf("limits lack %+v, want W3 because of MaxRetries", lacks)
	}
}

// L21: a refusal that time does not mend fails at once, at boot and later.
func TestPermanentRefusalFailsAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{Password: "secret"})
	for _, url := range []string{"redis://" + s.Addr(), "redis://:wrong@" + s.Addr()} {
		took := least(func() {
			if _, err := redis.OpenLock(t.Context(), redis.Config{URL: url}); !errors.Is(err, driver.ErrUnavailable) || !contains(err, "password") {
				t.Errorf("open: %v", err)
			}
		})
		if timed && took > driver.CallTimeout { // the bound of a call that is tried again
			t.Errorf("the refusal at boot took %v", took)
		}
	}
	d := open(t, redis.Config{URL: s.URL()})
	release(t, d, acquire(t, d, request("k")))
	must(t, command("ACL", "SETUSER", "default", "-evalsha", "-eval")(s))
	took := least(func() {
		if _, err := d.Acquire(t.Context(), request("k")); !errors.Is(err, driver.ErrUnavailable) || !contains(err, "NOPERM") {
			t.Errorf("acquire: %v, want %v with the refusal", err, driver.ErrUnavailable)
		}
	})
	if timed && took > driver.CallTimeout {
		t.Errorf("the refusal of a call took %v", took)
	}
	must(t, command("ACL", "SETUSER", "default", "+@all")(s))
}
