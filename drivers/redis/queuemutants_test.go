package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// queueMutants are mutants of the fast path of acquire into the queue, each
// without one of its guards.
var queueMutants = []mutant{
	{name: "takes a pool for a plain lock on the way into the queue", noticed: "L15/a grown pool serves its queue",
		old: `if ARGV[4] == '1' and ARGV[3] == '1'`, new: `if ARGV[3] == '1'`},
	{name: "queues a call without a wait", noticed: "L21/the driver refuses a call without a wait at once while others wait",
		old: `ARGV[3] == '1' and not ARGV[7]`, new: `not ARGV[7]`},
	{name: "puts a ticket that comes back behind newcomers", noticed: "L7/waiters that the backend has lost return to their places",
		old: `ARGV[3] == '1' and not ARGV[7]`, new: `ARGV[3] == '1'`},
	{name: "queues for a free lock", noticed: "L20/the driver grants a free key at once after a request was withdrawn, with and without a wait",
		old: `local holder = left > 0 and call('getrange', H, 0, #token - 1) or token`,
		new: `local holder = call('getrange', H, 0, #token - 1)`},
	{name: "queues the holder", noticed: "L6/the driver recognises a repeated request of the holder while others wait",
		old: `local kept = holder ~= token and`, new: `local kept = left > 0 and`},
	{name: "ignores the pool on the way into the queue", noticed: "L15/a pool with waiters drains when it shrinks",
		old: `(kept[1] or kept[2] or kept[3])`, new: `(kept[2] or kept[3])`},
	{name: "queues a barred request", noticed: "L6/the driver refuses a request that arrives after its release while others wait",
		old: `(kept[1] or kept[2] or kept[3])`, new: `(kept[1] or kept[3])`},
	{name: "puts a repeated request at the end", noticed: "L7/a late copy of a queued request leaves it in its place",
		old: `(kept[1] or kept[2] or kept[3])`, new: `(kept[1] or kept[2])`},
}

// queueCases are cases about the fast path of acquire into the queue that need
// data as only this driver stores it, each with the mutant that it notices.
var queueCases = []struct {
	name     string
	old, new string
	check    func(q *queueCase) error
}{
	{"a full queue refuses", `if position <= room then`, `if position then`, (*queueCase).full},
	{"a newcomer stays behind a ticket of a clock that was ahead", `math.max(us, (last or 0) + 1)`, `us`, (*queueCase).behind},
	{"a clock that steps back keeps no dead ticket", `ago >= 0 and ago <= heartbeat`, `ago <= heartbeat`, (*queueCase).steppedBack},
	{"after a gap silence does not count", `ago >= 0 and ago <= heartbeat`, `ago >= 0`, (*queueCase).gap},
	{"a newcomer removes what is due", ` and call('zcount', D, '-inf', ms) == 0 then`, ` then`, (*queueCase).due},
	{"a queue that never empties does not expire", `if not last or turn then`, `if not last then`, (*queueCase).lives},
	{"the times of a queue that never empties do not expire", `if turn then call('pexpire', D, keeping) end`, ``, (*queueCase).lives},
	{"a new queue expires", `if not last or turn then`, `if turn then`, (*queueCase).expires},
	{"a full server queues nobody", `call('zadd', Q, format('%.0f', at), token)`,
		`call('zrem', D, holder) call('zadd', Q, format('%.0f', at), token)`, (*queueCase).fullServer},
}

// Each case holds for the scripts as they are, and fails for its mutant.
func TestShortWayIntoTheQueueKeepsTheRules(t *testing.T) {
	t.Parallel()
	for _, c := range queueCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			check := func(edit func(string) string) (err error) {
				for range 20 {
					if err = checkQueue(t, s, edit, c.check); !errors.Is(err, errLate) {
						break
					}
				}
				return err
			}
			sound := func(source string) string { return source }
			if err := check(sound); err != nil {
				t.Error(err)
			}
			changed := false
			mutated := func(source string) string {
				changed = changed || strings.Contains(source, c.old)
				return strings.ReplaceAll(source, c.old, c.new)
			}
			var err error
			for range 3 { // after a pause of the machine the call takes the whole script
				if err = check(mutated); err != nil {
					break
				}
			}
			if err == nil {
				t.Errorf("a script without %q was not noticed", c.old)
			}
			if !changed {
				t.Errorf("no script contains %q", c.old)
			}
			t.Log(err)
		})
	}
}

// errLate is the error of a check that took so long that a heartbeat, or the time,
// may have changed the data.
var errLate = errors.New("the machine was too slow for this check")

// inTime is shorter than the time until the first heartbeat of a ticket.
const inTime = 400 * time.Millisecond

// checkQueue runs check on new locks until one check is in time.
func checkQueue(t *testing.T, s *redistest.Server, edit func(string) string, check func(*queueCase) error) error {
	t.Helper()
	for range 20 {
		d, err := openLock(t.Context(), redis.Edited(redis.Config{URL: s.URL()}, edit))
		must(t, err)
		q := &queueCase{t: t, server: s, d: d, key: token()}
		err = q.run(check)
		if !errors.Is(err, errLate) {
			return err
		}
	}
	t.Fatal(errLate)
	return nil
}

// queueCase is a lock that is held, and whose queue has been called a moment ago.
type queueCase struct {
	t      *testing.T
	server *redistest.Server
	d      driver.Driver
	key    string
	began  time.Time
	cancel []func()
}

func (q *queueCase) run(check func(*queueCase) error) error {
	held := acquire(q.t, q.d, request(q.key))
	q.called(0)
	err := check(q)
	if time.Since(q.began) > inTime {
		err = errLate
	}
	for _, cancel := range q.cancel {
		cancel()
	}
	must(q.t, q.d.Release(q.t.Context(), held))
	must(q.t, closeSoon(q.d))
	return err
}

func closeSoon(d driver.Driver) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return d.Close(ctx)
}

func (q *queueCase) do(args ...any) any {
	q.t.Helper()
	v, err := q.server.Do(args...)
	must(q.t, err)
	return v
}

func (q *queueCase) name(part string) string { return "mega:{" + q.key + "}:" + part }

// far lifts the times of calls above those of tickets.
const far = 1_000_000_000_000_000

// called stores that the last call about the lock was so long ago, and that calls
// have come for a minute. The check begins here.
func (q *queueCase) called(ago time.Duration) {
	now := time.Now()
	q.began = now
	q.do("ZADD", q.name("due"), far+now.Add(-ago).UnixMilli(), "seen", far+now.Add(-time.Minute).UnixMilli(), "since")
}

// ticket stores a ticket of a dead process that is due in so long.
func (q *queueCase) ticket(due time.Duration) string {
	ticket, at := token(), time.Now().Add(due)
	q.do("ZADD", q.name("order"), at.UnixMicro(), ticket)
	q.do("ZADD", q.name("due"), at.UnixMilli(), ticket)
	q.do("HSET", q.name("state"), ticket, `3 1 1 nobody - - - - - ghost`)
	return ticket
}

// ask asks for the lock, and leaves at the end of the case if it is queued. It
// returns the token.
func (q *queueCase) ask() (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := request(q.key)
	_, wait, err := q.d.(driver.Asker).Ask(ctx, r)
	if wait == nil {
		cancel()
		return r.Token, err
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = wait(ctx)
	}()
	q.cancel = append(q.cancel, func() { cancel(); <-left })
	return r.Token, nil
}

// queued is an ask that has to be queued.
func (q *queueCase) queued() string {
	q.t.Helper()
	ticket, err := q.ask()
	must(q.t, err)
	return ticket
}

// L10
func (q *queueCase) full() error {
	for from := 0; from < driver.MaxTickets; from += 1000 {
		order := []any{"ZADD", q.name("order")}
		for i := range 1000 {
			order = append(order, from+i, fmt.Sprintf("full%018d", from+i))
		}
		q.do(order...)
	}
	q.called(0)
	_, err := q.ask()
	q.do("DEL", q.name("order"))
	if busy, ok := errors.AsType[*driver.NotAcquiredError](err); ok && busy.Full {
		return nil
	}
	return fmt.Errorf("ask at a full queue: %v, want that it is full", err)
}

// L7
func (q *queueCase) behind() error {
	q.do("ZADD", q.name("order"), time.Now().Add(time.Hour).UnixMicro(), q.ticket(time.Second))
	if place := q.do("ZRANK", q.name("order"), q.queued()); place != int64(1) {
		return fmt.Errorf("the newcomer has place %v, want 1", place)
	}
	return nil
}

// L8
func (q *queueCase) steppedBack() error {
	q.ticket(time.Hour)
	q.called(-time.Hour)
	q.queued()
	if q.do("ZCOUNT", q.name("due"), time.Now().Add(time.Minute).UnixMilli(), far/2) != int64(0) {
		return errors.New("a dead ticket stays for an hour")
	}
	return nil
}

// L7
func (q *queueCase) gap() error {
	const due = inTime / 2
	q.called(1500 * time.Millisecond)
	ticket := q.ticket(due)
	q.queued()
	time.Sleep(due + 10*time.Millisecond)
	q.queued()
	if q.do("ZSCORE", q.name("order"), ticket) == nil {
		return errors.New("a ticket was removed before it had time for a heartbeat")
	}
	return nil
}

// L8
func (q *queueCase) due() error {
	dead := q.ticket(-time.Second)
	q.queued()
	if q.do("ZSCORE", q.name("order"), dead) != nil {
		return errors.New("a ticket that is due is still queued")
	}
	return nil
}

// L7: the tickets of a queue that is served quickly make no heartbeats. The call
// before was in the second before.
func (q *queueCase) lives() error {
	ago := time.Duration(time.Now().UnixMilli()%1000+50) * time.Millisecond
	if ago > 900*time.Millisecond {
		return errLate
	}
	q.called(ago)
	q.ticket(2 * time.Second)
	parts := []string{"order", "due", "state"}
	for _, part := range parts {
		q.do("PEXPIRE", q.name(part), 20_000)
	}
	q.queued()
	for _, part := range parts {
		if left := q.do("PTTL", q.name(part)).(int64); left < 25_000 {
			return fmt.Errorf("%s expires in %d ms", part, left)
		}
	}
	return nil
}

// L18
func (q *queueCase) expires() error {
	q.called(0)
	q.queued()
	for _, part := range []string{"order", "state"} {
		if left := q.do("PTTL", q.name(part)).(int64); left < 0 {
			return fmt.Errorf("%s has no TTL", part)
		}
	}
	return nil
}

// L21
func (q *queueCase) fullServer() error {
	q.do("CONFIG", "SET", "maxmemory", "1")
	_, err := q.ask()
	q.do("CONFIG", "SET", "maxmemory", "0")
	if !errors.Is(err, driver.ErrUnavailable) {
		return fmt.Errorf("ask at a full server: %v, want %v", err, driver.ErrUnavailable)
	}
	q.began = time.Now() // the driver has tried again for a second
	return nil
}
