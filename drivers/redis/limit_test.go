package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
)

// openLimit opens a driver of limits that is closed with the test.
func openLimit(t testing.TB, c redis.Config) driver.Driver {
	t.Helper()
	var d driver.Driver
	var err error
	for range 3 { // as openLock
		if d, err = redis.OpenLimit(t.Context(), c); !errors.Is(err, driver.ErrUnavailable) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// ward is a driver of limits whose scripts read a clock that the test sets.
type ward struct {
	*testing.T
	driver.Driver
	client *goredis.Client
	clock  string // the key of the clock
	key    string
	now    int64
	base   int64
	shown  atomic.Int64 // now, for a table that sweeps from a timer
}

// newWard returns a ward whose clock starts at the time of day, because TTLs are
// on the server's own clock. replaced are pairs of old and new texts of scripts.
func newWard(t *testing.T, replaced ...string) *ward {
	t.Helper()
	w := &ward{T: t, clock: "clock:" + token(), key: token(), client: goredis.NewClient(&goredis.Options{Addr: shared.Addr()})}
	t.Cleanup(func() { _ = w.client.Close() })
	w.base = time.Now().UnixMicro()
	w.now = w.base
	w.pass(0)
	edits := strings.NewReplacer(append(replaced, `call('time')`, fmt.Sprintf(`{0, call('get', '%s')}`, w.clock))...)
	w.Driver = openLimit(t, redis.Edited(redis.Config{URL: shared.URL()}, edits.Replace))
	return w
}

func (w *ward) pass(d time.Duration) {
	w.Helper()
	w.now += d.Microseconds()
	w.shown.Store(w.now)
	must(w.T, w.client.Set(w.Context(), w.clock, w.now, time.Hour).Err())
}

func rates(n int, per time.Duration) []driver.Rate { return []driver.Rate{{N: n, Per: per}} }

func (w *ward) ask(r driver.Request) driver.Answer {
	w.Helper()
	if r.Key == "" {
		r.Key = w.key
	}
	a, err := w.Take(w.Context(), r)
	must(w.T, err)
	return a
}

func (w *ward) take(cost int, rates ...driver.Rate) driver.Answer {
	w.Helper()
	return w.ask(driver.Request{Rates: rates, Cost: cost})
}

func (w *ward) granted(a driver.Answer) driver.Answer {
	w.Helper()
	if !a.Granted {
		w.Fatalf("refused: %+v", a)
	}
	return a
}

func (w *ward) refused(a driver.Answer, wait time.Duration) {
	w.Helper()
	if a.Granted || a.Wait != wait {
		w.Fatalf("got %+v, want a refusal for %v", a, wait)
	}
}

// Random operations have the same results as in the engine in memory, which is
// tested by itself.
func TestLimitDecidesAsTheEngineInMemory(t *testing.T) {
	t.Parallel()
	for _, rates := range [][]driver.Rate{
		rates(3, 10*time.Millisecond),
		rates(100, 100*time.Millisecond),
		rates(1000, 200*time.Millisecond),
		{{N: 20, Per: 50 * time.Millisecond}, {N: 150, Per: 500 * time.Millisecond}},
		{{N: 2000, Per: time.Second}, {N: 500, Per: 100 * time.Millisecond}},
	} {
		for _, smooth := range []bool{false, true} {
			t.Run(fmt.Sprint(rates, smooth), func(t *testing.T) {
				t.Parallel()
				w := newWard(t, `call('pexpire', `, `call('exists', `) // a slow machine would let logs expire within their window
				table := windows.New(w.shown.Load)
				defer table.Close()
				w.compare(table, rates, smooth, rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)))
			})
		}
	}
}

// held is a grant that was not settled yet.
type held struct {
	driver.Settlement
	ticket string
}

func (w *ward) compare(table *windows.Table, rates []driver.Rate, smooth bool, random *rand.Rand) {
	step := rates[0].Per.Microseconds() / int64(rates[0].N)
	var grants []held
	for i := range suite.Scaled(400) {
		w.pass(time.Duration(random.Int64N(step+1)) * time.Microsecond)
		r := driver.Request{Key: w.key, Rates: rates, Cost: 1 + random.IntN(min(3, rates[0].N)), Smooth: smooth}
		if random.IntN(3) == 0 {
			r.Ticket, r.Seq, r.MaxWait = fmt.Sprint("ticket", random.IntN(3)), uint64(i/7), time.Duration(random.Int64N(int64(rates[0].Per)))
		}
		switch n := random.IntN(20); {
		case n == 0 && len(grants) > 0:
			i := random.IntN(len(grants))
			s := grants[i].Settlement
			grants = slices.Delete(grants, i, i+1)
			s.Actual = random.IntN(s.Cost + 1)
			s.Actual += random.IntN(3)
			must(w.T, errors.Join(table.Settle(&s), w.Settle(w.Context(), s)))
		case n == 1 && r.Ticket != "":
			must(w.T, errors.Join(table.Withdraw(&r), w.Withdraw(w.Context(), r)))
			grants = slices.DeleteFunc(grants, func(h held) bool { return h.ticket == r.Ticket })
		case n == 2:
			r.Cost, r.Ticket = 0, ""
		case n == 3 && random.IntN(20) == 0:
			must(w.T, errors.Join(table.Reset(w.key), w.Reset(w.Context(), w.key)))
		case n == 4 && random.IntN(9) == 0:
			p := driver.Pause{Left: time.Duration(random.Int64N(int64(rates[0].Per))).Truncate(time.Microsecond), Reason: "test"}
			must(w.T, errors.Join(table.Pause(w.key, p), w.Pause(w.Context(), w.key, p)))
		}
		want, err := table.Take(&r)
		must(w.T, err)
		got := w.ask(r)
		if !reflect.DeepEqual(got, want) {
			w.Fatalf("call %d: %+v\ngot  %+v\nwant %+v", i, r, got, want)
		}
		if got.Granted && r.Cost > 0 {
			grants = slices.DeleteFunc(grants, func(h held) bool { return r.Ticket != "" && h.ticket == r.Ticket })
			grants = append(grants, held{driver.Settlement{Key: w.key, Rates: rates, At: got.At, Cost: r.Cost}, r.Ticket})
		}
	}
}

// Grants are spaced from the last grant, also if a plain one and a debt are the last
// entries of the log.
func TestADebtDoesNotChangeTheSpacing(t *testing.T) {
	t.Parallel()
	w, all := newWard(t), rates(100, 100*time.Millisecond)
	smooth := driver.Request{Rates: all, Cost: 1, Smooth: true}
	a := w.granted(w.take(3, all...))
	debt := driver.Settlement{Key: w.key, Rates: all, At: a.At, Cost: 3, Actual: 4}
	must(t, w.Settle(t.Context(), debt))
	w.refused(w.ask(smooth), 3*time.Millisecond)
	w.pass(3 * time.Millisecond)
	debt.Actual = 8
	must(t, w.Settle(t.Context(), debt))
	w.granted(w.ask(smooth))
}

// A debt of a caller with another N is no grant: a state without rates has the N of
// the last one. W14
func TestADebtDoesNotChangeTheNOfTheLastGrant(t *testing.T) {
	t.Parallel()
	w, old := newWard(t), rates(10, time.Minute)
	a := w.granted(w.take(1, old...))
	w.pass(time.Second)
	w.granted(w.take(1, rates(20, time.Minute)...))
	must(t, w.Settle(t.Context(), driver.Settlement{Key: w.key, Rates: old, At: a.At, Cost: 1, Actual: 3}))
	want := driver.RateState{Rate: driver.Rate{N: 20, Per: time.Minute}, Used: 4, Remaining: 16}
	if s, err := w.Inspect(t.Context(), w.key, nil); err != nil || len(s.Rates) != 1 || s.Rates[0] != want {
		t.Errorf("got %+v, %v, want %+v", s.Rates, err, want)
	}
}

// A log that begins anew returns nothing to a grant of the one before.
func TestUnitsOfALogThatWasResetAreNotReturned(t *testing.T) {
	t.Parallel()
	w, all := newWard(t), rates(4, time.Second)
	a := w.granted(w.take(4, all...))
	must(t, w.Reset(t.Context(), w.key))
	w.pass(time.Millisecond)
	w.granted(w.take(4, all...))
	must(t, w.Settle(t.Context(), driver.Settlement{Key: w.key, Rates: all, At: a.At, Cost: 4}))
	w.refused(w.take(1, all...), time.Second)
}

// W10 bounds what a step back adds to a rate. A refusal writes nothing, so that the
// clock alone says how much of a pause has passed.
func TestAStepBackLengthensAPauseByTheStepAtMost(t *testing.T) {
	t.Parallel()
	w, all := newWard(t), rates(9, time.Second)
	must(t, w.Pause(t.Context(), w.key, driver.Pause{Left: 10 * time.Minute, Reason: "test"}))
	w.pass(5 * time.Minute)
	w.refused(w.take(1, all...), 5*time.Minute)
	w.pass(-2 * time.Minute)
	w.refused(w.take(1, all...), 7*time.Minute)
	w.pass(-time.Hour) // to before the pause: it begins anew
	w.refused(w.take(1, all...), 10*time.Minute)
	w.pass(10 * time.Minute)
	w.granted(w.take(1, all...))
}

func TestAPauseThatIsOverIsForgotten(t *testing.T) {
	t.Parallel()
	w, all := newWard(t), rates(9, time.Minute)
	must(t, w.Pause(t.Context(), w.key, driver.Pause{Left: time.Second, Reason: "test"}))
	w.refused(w.take(1, all...), time.Second)
	w.pass(time.Second)
	w.granted(w.take(1, all...))
	if kept, err := w.client.HExists(t.Context(), "mega:{"+w.key+"}:rate", "pause").Result(); err != nil || kept {
		t.Errorf("the pause is kept: %v, %v", kept, err)
	}
}

func TestClosedLimitRefusesCalls(t *testing.T) {
	t.Parallel()
	limits, err := redis.OpenLimit(t.Context(), redis.Config{URL: shared.URL()})
	must(t, err)
	r := driver.Request{Key: token(), Rates: rates(9, time.Minute), Cost: 1}
	_, err = limits.Take(t.Context(), r)
	must(t, errors.Join(err, limits.Close(t.Context()), limits.Close(t.Context())))
	if _, err := limits.Take(t.Context(), r); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestLimitsOfAnotherFormatAreNotTouched(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	must(t, w.client.HSet(t.Context(), "mega:{"+w.key+"}:rate", "head", "7 what nobody knows").Err())
	if _, err := w.Take(t.Context(), driver.Request{Key: w.key, Rates: rates(1, time.Second), Cost: 1}); !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), "the limit has format 7, this program uses format 1") {
		t.Errorf("got %v, want an error with both formats", err)
	}
	other := token()
	must(t, w.client.Set(t.Context(), "mega:{"+other+"}:rate", "no hash", time.Minute).Err())
	for key, why := range map[string]string{w.key: "format 7", other: "another type"} {
		if all, err := w.List(t.Context(), key); err != nil || len(all) != 1 || !strings.Contains(all[0].Skipped, why) {
			t.Errorf("got %+v, %v, want a skipped limit", all, err)
		}
	}
}

func TestListLeavesOutLimitsWithTheMemoryOfATicketAlone(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.granted(w.ask(driver.Request{Rates: rates(1, time.Minute), Cost: 1, Ticket: "ticket", Seq: 1}))
	must(t, w.Reset(t.Context(), w.key))
	if all, err := w.List(t.Context(), w.key); err != nil || len(all) != 0 {
		t.Errorf("got %+v, %v, want no limit after a reset", all, err)
	}
}

// A key has 10 000 tickets at most. A request above that is refused with a code of its
// own, and waiting requests keep their places.
func TestAFullQueueOfALimitHasItsOwnError(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	queue := "mega:{" + w.key + "}:rate:"
	fill := w.client.Pipeline()
	for i := range 10_000 - 1 { // not by take, which would take seconds
		ticket := fmt.Sprint("ticket", i)
		fill.ZAdd(t.Context(), queue+"queue", goredis.Z{Score: float64(w.now), Member: ticket})
		fill.ZAdd(t.Context(), queue+"due", goredis.Z{Score: float64(w.now + time.Minute.Microseconds()), Member: ticket})
		fill.HSet(t.Context(), queue+"tickets", ticket, "w 1 1 {}")
	}
	_, err := fill.Exec(t.Context())
	must(t, err)
	ask := func(ticket string) driver.Answer {
		t.Helper()
		return w.ask(driver.Request{Rates: rates(1, time.Minute), Cost: 1, Ticket: ticket, Seq: 1, MaxWait: -1})
	}
	if a := ask("last"); a.Full || a.Again == 0 {
		t.Errorf("the last place: %+v", a)
	}
	if a := ask("more"); !a.Full || a.Again != 0 {
		t.Errorf("one ticket too many: %+v", a)
	}
	if a := ask("ticket1"); a.Full || a.Again == 0 {
		t.Errorf("a ticket that waits has lost its place: %+v", a)
	}
	limits, err := limit.New(w.Driver, limit.Config{})
	must(t, err)
	_, err = limits.Wait(t.Context(), w.key, limit.Limit{Rates: []limit.Rate{limit.PerMinute(1)}})
	if full, ok := errors.AsType[*limit.LimitedError](err); !ok || !full.Full || full.Code() != "limit.queue_full" || full.RetryAfter <= 0 {
		t.Errorf("a call: %v", err)
	}
}

// Every key expires, and a while after the last use nothing is left.
func TestLimitLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	all := []driver.Rate{{N: 3, Per: 50 * time.Millisecond}, {N: 1000, Per: time.Second}}
	for i := range 30 {
		w.pass(20 * time.Millisecond)
		r := driver.Request{Key: w.key, Rates: all[:1+i%2], Cost: 1 + i%2, Smooth: i%5 == 0, MaxWait: -1}
		if i%3 == 0 {
			r.Ticket, r.Seq = fmt.Sprint("ticket", i%4), uint64(i)
		}
		if a := w.ask(r); a.Granted {
			must(t, w.Settle(t.Context(), driver.Settlement{Key: w.key, Rates: all, At: a.At, Cost: 2, Actual: i % 4}))
		}
	}
	must(t, w.Pause(t.Context(), w.key, driver.Pause{Left: time.Second, Reason: "test"}))
	must(t, w.Withdraw(t.Context(), driver.Request{Key: w.key, Ticket: "ticket9", Rates: all}))
	names, err := w.client.Keys(t.Context(), "mega:{"+w.key+"}*").Result()
	must(t, err)
	if len(names) != 6 {
		t.Errorf("got the keys %q, want six", names)
	}
	for _, name := range names {
		bound := 20 * time.Second
		if strings.HasSuffix(name, ":tickets") || strings.HasSuffix(name, ":queue") || strings.HasSuffix(name, ":due") {
			bound = time.Minute // settlements are remembered there
		}
		if left := w.client.PTTL(t.Context(), name).Val(); left <= 0 || left > bound {
			t.Errorf("%s lives for %v", name, left)
		}
	}
	must(t, w.Pause(t.Context(), w.key, driver.Pause{Left: time.Hour, Reason: "test"}))
	must(t, w.Reset(t.Context(), w.key))
	if s, err := w.Inspect(t.Context(), w.key, nil); err != nil || len(s.Rates) != 0 || s.Paused != nil {
		t.Errorf("got %+v, %v, want nothing after a reset", s, err)
	}
	if left := w.client.PTTL(t.Context(), "mega:{"+w.key+"}:rate").Val(); left <= 0 || left > 20*time.Second {
		t.Errorf("the state lives for %v after a reset", left)
	}
}
