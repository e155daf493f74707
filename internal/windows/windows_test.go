package windows_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// clock is a clock that a test moves. It starts at one second.
type clock struct{ now int64 }

func (c *clock) pass(d time.Duration) { c.now += d.Microseconds() }

// bench is a table, its clock, and the grants of the test.
type bench struct {
	*testing.T
	*windows.Table
	clock
	grants []grant
}

type grant struct{ at, units int64 }

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, clock: clock{now: 1_000_000}}
	b.Table = windows.New(func() int64 { return b.now })
	t.Cleanup(b.Close)
	return b
}

func per(n int, d time.Duration) []driver.Rate { return []driver.Rate{{N: n, Per: d}} }

// take asks without a ticket.
func (b *bench) take(cost int, rates ...driver.Rate) driver.Answer {
	b.Helper()
	return b.ask(driver.Request{Key: "k", Rates: rates, Cost: cost})
}

func (b *bench) ask(r driver.Request) driver.Answer {
	b.Helper()
	a, err := b.Take(&r)
	if err != nil {
		b.Fatal(err)
	}
	if a.Granted {
		b.grants = append(b.grants, grant{a.At.UnixMicro(), int64(r.Cost)})
	}
	return a
}

func (b *bench) granted(a driver.Answer) driver.Answer {
	b.Helper()
	if !a.Granted {
		b.Fatalf("refused: %+v", a)
	}
	return a
}

func (b *bench) refused(a driver.Answer, wait time.Duration) {
	b.Helper()
	if a.Granted || a.Wait != wait {
		b.Fatalf("got %+v, want a refusal for %v", a, wait)
	}
}

func (b *bench) settle(a driver.Answer, cost, actual int, rates ...driver.Rate) {
	b.Helper()
	if err := b.Settle(&driver.Settlement{Key: "k", Rates: rates, At: a.At, Cost: cost, Actual: actual}); err != nil {
		b.Fatal(err)
	}
}

// worst returns the greatest number of units in a half-open interval.
func worst(grants []grant, per time.Duration) (most int64) {
	slices.SortFunc(grants, func(a, b grant) int { return int(a.at - b.at) })
	units, first := int64(0), 0
	for _, g := range grants {
		for units += g.units; grants[first].at+per.Microseconds() <= g.at; first++ {
			units -= grants[first].units
		}
		most = max(most, units)
	}
	return most
}

func TestWindowSlides(t *testing.T) {
	b, rate := newBench(t), per(5, 800*time.Millisecond)
	b.granted(b.take(2, rate...))
	b.pass(150 * time.Millisecond)
	b.granted(b.take(3, rate...))
	b.refused(b.take(1, rate...), 650*time.Millisecond)
	b.refused(b.take(3, rate...), 800*time.Millisecond)
	b.pass(650*time.Millisecond - time.Microsecond)
	b.refused(b.take(1, rate...), time.Microsecond)
	b.pass(time.Microsecond)
	b.granted(b.take(2, rate...))
	b.refused(b.take(1, rate...), 150*time.Millisecond)
}

func TestRefusalConsumesNothing(t *testing.T) {
	b := newBench(t)
	rates := []driver.Rate{{N: 1, Per: 10 * time.Second}, {N: 10, Per: time.Second}}
	b.granted(b.take(1, rates...))
	for range 50 {
		b.refused(b.take(1, rates...), 10*time.Second)
	}
	s, err := b.Inspect("k", nil)
	if err != nil || s.Rates[0].Used != 1 || s.Rates[1].Used != 1 {
		t.Errorf("got %+v, %v, want 1 unit used of each rate", s, err)
	}
}

// Random requests of several sizes never exceed a rate, and use nearly all of
// it. A third of the grants is given back in part.
func TestNoWindowHoldsMoreThanTheRate(t *testing.T) {
	for _, rates := range [][]driver.Rate{
		per(3, 10*time.Millisecond),
		per(128, 100*time.Millisecond),
		per(1000, 200*time.Millisecond),
		{{N: 20, Per: 50 * time.Millisecond}, {N: 150, Per: 500 * time.Millisecond}},
		{{N: 2000, Per: time.Second}, {N: 500, Per: 100 * time.Millisecond}},
	} {
		t.Run(fmt.Sprint(rates), func(t *testing.T) {
			b, random := newBench(t), rand.New(rand.NewPCG(1, uint64(rates[0].N)))
			tight := rates[0]
			step := tight.Per.Microseconds() / int64(tight.N) / 4
			for range 20_000 {
				b.now += random.Int64N(step + 1)
				cost := 1 + random.IntN(min(3, tight.N))
				a := b.take(cost, rates...)
				if !a.Granted || random.IntN(3) > 0 {
					continue
				}
				b.now += random.Int64N(step + 1)
				actual := random.IntN(cost + 1)
				b.settle(a, cost, actual, rates...)
				b.grants[len(b.grants)-1].units = int64(actual)
			}
			use := 1e9
			var units int64
			for _, g := range b.grants {
				units += g.units
			}
			for _, r := range rates {
				if got := worst(b.grants, r.Per); got > int64(r.N) {
					t.Errorf("%d units in %v, want at most %d", got, r.Per, r.N)
				}
				allowed := float64(r.N) * float64(b.now-1_000_000) / float64(r.Per.Microseconds())
				use = min(use, allowed)
			}
			if share := float64(units) / use; share < 0.85 {
				t.Errorf("%.3f of the rate was used", share)
			}
		})
	}
}

func TestReturnedUnitsBelongToTheirOwnWindow(t *testing.T) {
	b, rate := newBench(t), per(4, time.Second)
	first := b.granted(b.take(2, rate...))
	b.pass(600 * time.Millisecond)
	second := b.granted(b.take(2, rate...))
	b.settle(first, 2, 0, rate...) // 2 units of the first window are free now
	b.granted(b.take(2, rate...))
	b.refused(b.take(1, rate...), time.Second)
	b.pass(time.Second)
	b.settle(second, 2, 0, rate...) // has left the window: there is nothing to return
	third := b.granted(b.take(4, rate...))
	b.settle(second, 2, 0, rate...)
	b.refused(b.take(1, rate...), time.Second)
	if err := b.Reset("k"); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Microsecond)
	b.granted(b.take(4, rate...))
	b.settle(third, 4, 0, rate...) // is forgotten
	b.refused(b.take(1, rate...), time.Second)
}

func TestUnitsOfAPastWindowAreNotReturnedToALaterGrant(t *testing.T) {
	b, rate := newBench(t), per(4, time.Second)
	first := b.granted(b.take(4, rate...))
	b.pass(time.Second)
	b.granted(b.take(4, rate...))
	b.settle(first, 4, 0, rate...)
	b.refused(b.take(1, rate...), time.Second)
}

func TestDebtDelaysLaterGrants(t *testing.T) {
	b, rate := newBench(t), per(4, time.Second)
	a := b.granted(b.take(1, rate...))
	b.pass(500 * time.Millisecond)
	b.settle(a, 1, 10, rate...)
	b.refused(b.take(1, rate...), time.Second)
	b.pass(time.Second)
	b.granted(b.take(4, rate...))
}

func TestNewNCountsFromTheNextCall(t *testing.T) {
	b := newBench(t)
	for range 10 {
		b.granted(b.take(1, per(10, time.Second)...))
		b.pass(10 * time.Millisecond)
	}
	b.refused(b.take(1, per(5, time.Second)...), 950*time.Millisecond) // the 6th of 10 leaves at 1050
	b.granted(b.take(5, per(15, time.Second)...))
	b.refused(b.take(1, per(15, time.Second)...), 900*time.Millisecond)
	b.granted(b.take(1000, per(1015, time.Second)...))
	b.refused(b.take(1, per(5, time.Second)...), b.tickAfter(time.Second))
}

// tickAfter returns the time until the entry of a grant now leaves its window,
// where times are rounded up.
func (b *bench) tickAfter(per time.Duration) time.Duration {
	tick := driver.Tick(driver.Rate{N: 1000, Per: per}).Microseconds()
	at := (b.now + tick - 1) / tick * tick
	return time.Duration(at-b.now)*time.Microsecond + per
}

func TestManyGrantsNeedFewEntries(t *testing.T) {
	b, rates := newBench(t), per(1_000_000, time.Second)
	for range 5_000 {
		b.granted(b.take(7, rates...))
		b.pass(113 * time.Microsecond)
	}
	if _, marks, _ := b.Size(); marks > 130 {
		t.Errorf("%d entries, want at most 130", marks)
	}
	b.pass(2 * time.Second)
	for range 5_000 { // debts are no grants, and have no limit
		a := b.granted(b.take(1, per(100, time.Second)[0]))
		b.settle(a, 1, 2, per(100, time.Second)...)
		b.pass(time.Second / 40)
	}
	if _, marks, _ := b.Size(); marks > 600 {
		t.Errorf("%d entries, want a bound", marks)
	}
}

func TestSmoothSpacesGrants(t *testing.T) {
	b := newBench(t)
	smooth := func(cost int) driver.Answer {
		return b.ask(driver.Request{Key: "k", Rates: per(10, time.Second), Cost: cost, Smooth: true})
	}
	b.granted(smooth(3))
	b.refused(smooth(1), 300*time.Millisecond)
	b.pass(300 * time.Millisecond)
	b.granted(smooth(1))
	b.refused(smooth(1), 100*time.Millisecond)
}

// Units that were granted under a larger N are spaced by one window at most, after
// which the table may have forgotten them (W8).
func TestASmallerSmoothNLocksNobodyOut(t *testing.T) {
	b := newBench(t)
	smooth := func(n, cost int) driver.Answer {
		return b.ask(driver.Request{Key: "k", Rates: per(n, time.Second), Cost: cost, Smooth: true})
	}
	b.granted(smooth(100, 100))
	b.refused(smooth(1, 1), time.Second)
	b.pass(time.Second)
	b.granted(smooth(1, 1))
}

func TestLongestPauseWinsAndResetLiftsIt(t *testing.T) {
	b, rate := newBench(t), per(4, time.Second)
	for _, p := range []driver.Pause{{Left: 2 * time.Second, Reason: "long"}, {Left: time.Second, Reason: "short"}} {
		if err := b.Pause("k", p); err != nil {
			t.Fatal(err)
		}
	}
	a := b.take(1, rate...)
	b.refused(a, 2*time.Second)
	if a.By != -1 || a.Paused == nil || a.Paused.Reason != "long" {
		t.Errorf("got %+v, want the long pause", a)
	}
	b.pass(2 * time.Second)
	b.granted(b.take(4, rate...))
	if err := b.Pause("k", driver.Pause{Left: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := b.Reset("k"); err != nil {
		t.Fatal(err)
	}
	b.granted(b.take(4, rate...))
}

func TestClockThatStepsBackDelaysNobodyLonger(t *testing.T) {
	b, rate := newBench(t), per(2, time.Second)
	b.now += time.Hour.Microseconds()
	b.granted(b.take(1, rate...))
	b.pass(400 * time.Millisecond)
	held := b.granted(b.take(1, rate...))
	b.pass(-time.Hour)
	b.refused(b.take(1, rate...), 600*time.Millisecond)
	b.pass(100 * time.Millisecond)
	b.settle(held, 1, 0, rate...)
	b.granted(b.take(1, rate...))
	b.refused(b.take(1, rate...), 500*time.Millisecond)
	b.pass(time.Hour)
	b.granted(b.take(2, rate...))
	b.refused(b.take(1, rate...), time.Second)
}

// wait asks with the ticket of a process.
func (b *bench) wait(process string, seq uint64, cost int, rates []driver.Rate) driver.Answer {
	b.Helper()
	return b.ask(driver.Request{Key: "k", Rates: rates, Cost: cost, Ticket: process, Seq: seq, MaxWait: -1})
}

func TestTicketsAreServedInTurn(t *testing.T) {
	b, rate := newBench(t), per(1, time.Second)
	b.granted(b.wait("a", 1, 1, rate))
	b.refused(b.wait("a", 2, 1, rate), time.Second)
	b.refused(b.wait("b", 1, 1, rate), 2*time.Second)
	b.refused(b.wait("a", 2, 1, rate), time.Second) // keeps its place
	b.pass(time.Second)
	b.refused(b.take(1, rate...), 2*time.Second)
	b.refused(b.wait("b", 1, 1, rate), time.Second) // not before a
	b.granted(b.wait("a", 2, 1, rate))
	b.refused(b.wait("a", 3, 1, rate), 2*time.Second)
	b.pass(time.Second)
	b.granted(b.wait("b", 1, 1, rate))
}

func TestRepeatedRequestIsTheSameGrant(t *testing.T) {
	b, rate := newBench(t), per(2, time.Second)
	first := b.granted(b.wait("a", 1, 1, rate))
	b.pass(time.Millisecond)
	if again := b.granted(b.wait("a", 1, 1, rate)); !again.At.Equal(first.At) || again.Remaining != 1 {
		t.Errorf("got %+v, want the grant at %v", again, first.At)
	}
	b.granted(b.wait("a", 2, 1, rate))
	if late := b.wait("a", 1, 1, rate); late.Granted {
		t.Errorf("a late copy was granted: %+v", late)
	}
}

func TestWithdrawReturnsAnUnseenGrant(t *testing.T) {
	b, rate := newBench(t), per(1, time.Second)
	b.granted(b.wait("a", 1, 1, rate))
	r := driver.Request{Key: "k", Rates: rate, Cost: 1, Ticket: "a", Seq: 1, MaxWait: -1}
	for range 2 {
		if err := b.Withdraw(&r); err != nil {
			t.Fatal(err)
		}
	}
	if late := b.ask(r); late.Granted || late.Again != 0 {
		t.Errorf("a copy of a withdrawn request: %+v", late)
	}
	b.granted(b.wait("a", 2, 1, rate))
	b.refused(b.wait("b", 1, 1, rate), time.Second)
	if err := b.Withdraw(&driver.Request{Key: "k", Rates: rate, Cost: 1, Ticket: "b", Seq: 1}); err != nil {
		t.Fatal(err)
	}
	b.refused(b.take(1, rate...), time.Second) // b is no longer ahead
}

func TestTooLateIsRefusedAtOnce(t *testing.T) {
	b, rate := newBench(t), per(1, time.Second)
	b.granted(b.take(1, rate...))
	a := b.ask(driver.Request{Key: "k", Rates: rate, Cost: 1, Ticket: "a", Seq: 1, MaxWait: 999 * time.Millisecond})
	b.refused(a, time.Second)
	if s, _ := b.Inspect("k", nil); a.Again != 0 || len(s.Waiters) != 0 {
		t.Errorf("got %+v and %+v, want no ticket", a, s)
	}
}

func TestDeadTicketsCostTwoSecondsTogether(t *testing.T) {
	b, rate := newBench(t), per(100, 10*time.Millisecond)
	b.granted(b.take(100, rate...))
	for i := range 20 {
		b.refused(b.wait(fmt.Sprint("dead", i), 1, 1, rate), 10*time.Millisecond)
	}
	start := b.now
	for seq := uint64(1); !b.wait("live", seq, 1, rate).Granted; b.pass(3 * time.Millisecond) {
	}
	if took := time.Duration(b.now-start) * time.Microsecond; took > 2*time.Second {
		t.Errorf("dead tickets cost %v", took)
	}
}

func TestStateShowsRatesWaitersAndPause(t *testing.T) {
	b := newBench(t)
	rates := []driver.Rate{{N: 3, Per: time.Second}, {N: 100, Per: time.Minute}}
	b.granted(b.take(3, rates...))
	b.ask(driver.Request{Key: "k", Rates: rates, Cost: 2, Ticket: "a", Seq: 1, MaxWait: -1, Waiter: driver.Holder{PID: 7}})
	if err := b.Pause("k", driver.Pause{Left: time.Minute, Reason: "told so", By: driver.Holder{PID: 8}}); err != nil {
		t.Fatal(err)
	}
	states, err := b.List("")
	if err != nil || len(states) != 1 {
		t.Fatalf("got %+v, %v", states, err)
	}
	s := states[0]
	if want := (driver.RateState{Rate: rates[0], Used: 3, NextFree: time.Second}); s.Rates[0] != want {
		t.Errorf("got %+v, want %+v", s.Rates[0], want)
	}
	if want := (driver.RateState{Rate: rates[1], Used: 3, Remaining: 97}); s.Rates[1] != want {
		t.Errorf("got %+v, want %+v", s.Rates[1], want)
	}
	if len(s.Waiters) != 1 || s.Waiters[0].PID != 7 || s.Waiters[0].Cost != 2 {
		t.Errorf("got the waiters %+v", s.Waiters)
	}
	if s.Paused == nil || s.Paused.By.PID != 8 || s.Paused.Reason != "told so" || s.Paused.Left != time.Minute {
		t.Errorf("got the pause %+v", s.Paused)
	}
	b.Drop("a")
	if s, _ := b.Inspect("k", per(9, time.Hour)); len(s.Waiters) != 0 || s.Rates[0] != (driver.RateState{Rate: driver.Rate{N: 9, Per: time.Hour}, Remaining: 9}) {
		t.Errorf("got %+v, want an unused rate and no waiters", s)
	}
}

// The difference of two Pers needs more than 32 bits, which is the size of an int on
// some systems.
func TestStateShowsRatesInTheOrderOfTheirPer(t *testing.T) {
	b := newBench(t)
	rates := []driver.Rate{{N: 5, Per: time.Second}, {N: 5, Per: 4 * time.Second}, {N: 5, Per: 31 * 24 * time.Hour}}
	b.take(1, rates[1], rates[2], rates[0])
	s, err := b.Inspect("k", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]driver.Rate, 0, len(s.Rates))
	for _, r := range s.Rates {
		got = append(got, r.Rate)
	}
	if !slices.Equal(got, rates) {
		t.Errorf("got %v, want %v", got, rates)
	}
}

func TestNothingStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := windows.New(func() int64 { return time.Now().UnixMicro() })
		defer table.Close()
		for i := range 5_000 {
			r := driver.Request{Key: fmt.Sprint(i), Rates: per(1, time.Minute), Cost: 1, MaxWait: -1}
			if i%3 == 0 {
				r.Ticket, r.Seq = "a", uint64(i)
			}
			for range 2 {
				if _, err := table.Take(&r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if keys, _, _ := table.Size(); keys != 5_000 {
			t.Errorf("%d keys", keys)
		}
		time.Sleep(2 * time.Minute)
		if keys, marks, timers := table.Size(); keys+marks+timers != 0 {
			t.Errorf("%d keys, %d entries and %d timers stay", keys, marks, timers)
		}
	})
}

func TestClosedTableRefuses(t *testing.T) {
	b := newBench(t)
	b.take(1, per(1, time.Second)...)
	b.Close()
	if _, err := b.Take(&driver.Request{Key: "k", Rates: per(1, time.Second), Cost: 1}); err != driver.ErrClosed {
		t.Errorf("got %v", err)
	}
	if _, err := b.List(""); err != driver.ErrClosed {
		t.Errorf("got %v", err)
	}
}

func BenchmarkTake(b *testing.B) {
	base := time.Now()
	table := windows.New(func() int64 { return time.Since(base).Microseconds() })
	defer table.Close()
	for _, rates := range [][]driver.Rate{per(1_000_000_000, time.Second), per(100, time.Second)} {
		b.Run(fmt.Sprint(rates), func(b *testing.B) {
			b.ReportAllocs()
			r := driver.Request{Key: "k", Rates: rates, Cost: 1}
			for b.Loop() {
				_, _ = table.Take(&r)
			}
		})
	}
}

// The estimate for a caller with a small N behind waiters with a large one may be
// longer than a Duration can be.
func TestEstimateIsNeverNegative(t *testing.T) {
	for _, smooth := range []bool{false, true} {
		b := newBench(t)
		longest := 31 * 24 * time.Hour
		many := per(driver.MaxN, longest)
		b.granted(b.take(driver.MaxN, many...))
		b.wait("a", 1, driver.MaxN, many)
		a := b.ask(driver.Request{Key: "k", Rates: per(1, longest), Smooth: smooth, Cost: 1})
		if a.Granted || a.Wait < 100*365*24*time.Hour {
			t.Errorf("smooth %v: got %+v, want a wait of centuries", smooth, a)
		}
		if r := b.ask(driver.Request{Key: "k", Rates: per(1, longest), Smooth: smooth, Cost: 1, Ticket: "b", Seq: 1, MaxWait: time.Hour}); r.Again != 0 {
			t.Errorf("smooth %v: got %+v, want a refusal", smooth, r)
		}
		if r := b.ask(driver.Request{Key: "k", Rates: per(1, longest), Smooth: smooth, Cost: 1, Ticket: "b", Seq: 2, MaxWait: -1}); r.Again != time.Second {
			t.Errorf("smooth %v: got %+v, want a request every second", smooth, r)
		}
	}
}

// Requests may arrive late and out of order. A ticket has its newest one, and only a
// Withdraw of the grant itself returns its units (W9).
func TestLateRequestsOfATicketChangeNothing(t *testing.T) {
	b, rate := newBench(t), per(1, time.Second)
	withdraw := func(id string, seq uint64) {
		t.Helper()
		if err := b.Withdraw(&driver.Request{Key: "k", Rates: rate, Cost: 1, Ticket: id, Seq: seq, MaxWait: -1}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(used, waiters int) {
		t.Helper()
		if s, err := b.Inspect("k", rate); err != nil || s.Rates[0].Used != used || len(s.Waiters) != waiters {
			t.Errorf("got %+v, %v, want %d units used and %d waiters", s, err, used, waiters)
		}
	}
	b.granted(b.wait("b", 1, 1, rate))
	withdraw("b", 2)
	want(1, 0)
	b.refused(b.wait("a", 3, 1, rate), time.Second)
	if late := b.wait("a", 2, 1, rate); late.Granted || late.Again != 0 {
		t.Errorf("a late copy: %+v", late)
	}
	withdraw("a", 2)
	want(1, 1)
	withdraw("a", 3)
	want(1, 0)
	withdraw("c", 1) // before its request
	if late := b.wait("c", 1, 1, rate); late.Granted || late.Again != 0 {
		t.Errorf("a copy of a withdrawn request: %+v", late)
	}
	want(1, 0)
}
