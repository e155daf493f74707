package windows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// copies are a table and copies of it, which learn of its decisions in their
// order, each after a delay of its own.
type copies struct {
	*bench
	others []*windows.Table
	news   []func(*windows.Table) error
	heard  []int // of each copy
}

func newCopies(t *testing.T, n int) *copies {
	t.Helper()
	c := &copies{bench: newBench(t), heard: make([]int, n)}
	for range n {
		other := windows.New(func() int64 { return c.now })
		t.Cleanup(other.Close)
		c.others = append(c.others, other)
	}
	return c
}

// hear lets a copy learn of up to n decisions.
func (c *copies) hear(i, n int) {
	c.Helper()
	for ; n > 0 && c.heard[i] < len(c.news); n-- {
		if err := c.news[c.heard[i]](c.others[i]); err != nil {
			c.Fatal(err)
		}
		c.heard[i]++
	}
}

func (c *copies) take(cost int, rates ...driver.Rate) driver.Answer {
	c.Helper()
	r := driver.Request{Key: "k", Rates: rates, Cost: cost}
	a := c.ask(r)
	if a.Granted {
		c.news = append(c.news, func(t *windows.Table) error { return t.Learn(&r, a.At) })
	}
	return a
}

func (c *copies) settle(a driver.Answer, cost, actual int, rates ...driver.Rate) {
	c.Helper()
	s := driver.Settlement{Key: "k", Rates: rates, At: a.At, Cost: cost, Actual: actual}
	at := time.UnixMicro(c.now)
	if err := c.SettleAt(&s, at); err != nil {
		c.Fatal(err)
	}
	c.news = append(c.news, func(t *windows.Table) error { return t.SettleAt(&s, at) })
}

// successor returns a table that has what the copies report, as JSON.
func (c *copies) successor() *windows.Table {
	c.Helper()
	next := windows.New(func() int64 { return c.now })
	c.Cleanup(next.Close)
	for _, other := range c.others {
		for r := range other.Records() {
			text, err := json.Marshal(r)
			if err != nil {
				c.Fatal(err)
			}
			var read windows.Record
			if err := json.Unmarshal(text, &read); err != nil {
				c.Fatal(err)
			}
			if _, err := next.Restore(read); err != nil {
				c.Fatal(err)
			}
		}
	}
	return next
}

func (c *copies) want(next *windows.Table, rates []driver.Rate) {
	c.Helper()
	want, err := c.Inspect("k", rates)
	if err != nil {
		c.Fatal(err)
	}
	got, err := next.Inspect("k", rates)
	if err != nil {
		c.Fatal(err)
	}
	for i := range want.Rates {
		if got.Rates[i] != want.Rates[i] {
			c.Fatalf("the next table has %+v, want %+v", got.Rates[i], want.Rates[i])
		}
	}
}

func TestReturnedUnitsStayReturnedInTheNextTable(t *testing.T) {
	c, rate := newCopies(t, 2), per(5, time.Second)
	first := c.granted(c.take(3, rate...))
	c.pass(time.Millisecond)
	second := c.granted(c.take(2, rate...))
	c.hear(0, 2) // and nothing more
	c.settle(first, 3, 1, rate...)
	c.settle(second, 2, 0, rate...)
	c.hear(1, 4)
	c.want(c.successor(), rate)
}

func TestDebtCountsOnceInTheNextTable(t *testing.T) {
	c, rate := newCopies(t, 3), per(50, time.Second)
	a := c.granted(c.take(1, rate...))
	c.settle(a, 1, 11, rate...)
	for i := range c.others {
		c.pass(time.Millisecond) // each copy hears of it at another time
		c.hear(i, 2)
	}
	c.want(c.successor(), rate)
}

// Above N = 128 the time of an entry is after its grants.
func TestUnitsAreReturnedToTheNextTable(t *testing.T) {
	for _, rate := range [][]driver.Rate{per(5, time.Second), per(1000, time.Hour)} {
		c := newCopies(t, 2)
		old := c.granted(c.take(1, rate...))
		c.pass(rate[0].Per + driver.Tick(rate[0]))
		a := c.granted(c.take(3, rate...))
		for i := range c.others {
			c.hear(i, 2)
		}
		next := c.successor()
		for _, left := range []driver.Settlement{{Key: "k", Rates: rate, At: old.At, Cost: 1}, {Key: "k", Rates: rate, At: a.At, Cost: 3, Actual: 1}} {
			if err := errors.Join(c.Settle(&left), next.Settle(&left)); err != nil {
				t.Fatal(err)
			}
		}
		if s, _ := c.Inspect("k", rate); s.Rates[0].Used != 1 {
			t.Errorf("the first table has %+v, want 1 unit used", s)
		}
		c.want(next, rate)
	}
}

// A copy that lacks the newest decisions reports first: it does not know that a
// grant has left the window.
func TestUnitsOfAPastWindowAreNotReturnedToTheNextTable(t *testing.T) {
	for _, n := range []int{5, 1000} {
		c, rate := newCopies(t, 2), []driver.Rate{{N: n, Per: time.Second}, {N: 10_000, Per: time.Hour}}
		c.granted(c.take(1, rate...))
		c.hear(0, 1)
		c.pass(rate[0].Per)
		old := c.granted(c.take(3, rate...))
		c.pass(rate[0].Per + 2*driver.Tick(rate[0]))
		c.granted(c.take(3, rate...))
		c.hear(1, 3)
		next := c.successor()
		left := driver.Settlement{Key: "k", Rates: rate, At: old.At, Cost: 3}
		if err := errors.Join(c.Settle(&left), next.Settle(&left)); err != nil {
			t.Fatal(err)
		}
		c.want(next, rate)
	}
}

// The next table has exactly what the copy with the most news has, in whatever
// order they report.
func TestNextTableHasWhatTheLastOneHad(t *testing.T) {
	for _, rates := range [][]driver.Rate{
		per(100, 50*time.Millisecond),
		per(1000, 50*time.Millisecond),
		{{N: 20, Per: 10 * time.Millisecond}, {N: 500, Per: 500 * time.Millisecond}},
	} {
		for seed := range uint64(10) {
			t.Run(fmt.Sprint(rates, seed), func(t *testing.T) {
				c, random := newCopies(t, 3), rand.New(rand.NewPCG(seed, 0))
				for range 500 {
					c.pass(time.Duration(random.IntN(300)) * time.Microsecond)
					cost := 1 + random.IntN(9)
					if a := c.take(cost, rates...); a.Granted && random.IntN(2) == 0 {
						c.pass(time.Duration(random.IntN(300)) * time.Microsecond)
						c.settle(a, cost, random.IntN(cost+3), rates...)
					}
					c.hear(random.IntN(len(c.others)), random.IntN(9))
				}
				c.hear(random.IntN(len(c.others)), len(c.news))
				c.want(c.successor(), rates)
			})
		}
	}
}

// One process has not heard of the last grant of a ticket, and reports first.
func TestNextTableKnowsTheLastGrantOfATicket(t *testing.T) {
	b, rate := newBench(t), per(3, time.Minute)
	late := windows.New(func() int64 { return b.now })
	defer late.Close()
	for seq := range uint64(2) {
		b.granted(b.wait("a", seq+1, 1, rate))
		for r := range b.Records() {
			if seq == 0 {
				if _, err := late.Restore(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.pass(time.Millisecond)
	}
	next := newBench(t)
	for _, r := range slices.AppendSeq(slices.Collect(late.Records()), b.Records()) {
		if _, err := next.Restore(r); err != nil {
			t.Fatal(err)
		}
	}
	next.granted(next.wait("a", 2, 1, rate)) // asked again (W9)
	if s, err := next.Inspect("k", rate); err != nil || s.Rates[0].Used != 2 {
		t.Errorf("got %+v, %v, want 2 units used", s, err)
	}
}

// A record of a key has a bounded number of logs, because its reader refuses
// larger ones.
func TestRecordsOfAKeyWithManyLogsAreSmall(t *testing.T) {
	b := newBench(t)
	for i := range 100 {
		b.granted(b.take(1, per(1, time.Minute+time.Duration(i)*time.Second)...))
	}
	logs := 0
	for r := range b.Records() {
		logs += len(r.Logs)
		if len(r.Logs) > driver.MaxRates {
			t.Errorf("a record has %d logs, want at most %d", len(r.Logs), driver.MaxRates)
		}
	}
	if logs != 100 {
		t.Errorf("the records have %d logs, want 100", logs)
	}
}

// The state of a smooth limit is the same at the next table.
func TestNextTableSpacesTheNextFreeUnit(t *testing.T) {
	c, rate := newCopies(t, 2), per(10, time.Minute)
	r := driver.Request{Key: "k", Rates: rate, Cost: 1, Smooth: true}
	a := c.granted(c.ask(r))
	c.news = append(c.news, func(t *windows.Table) error { return t.Learn(&r, a.At) })
	c.hear(0, 1)
	if s, err := c.Inspect("k", rate); err != nil || s.Rates[0].NextFree != 6*time.Second {
		t.Fatalf("got %+v, %v, want a unit after 6s", s, err)
	}
	c.want(c.successor(), rate)
}

// A copy that has not heard of what the last grant gave back reports last.
func TestNextTableSpacesByWhatTheLastGrantHasKept(t *testing.T) {
	c, rate := newCopies(t, 2), per(10, time.Second)
	r := driver.Request{Key: "k", Rates: rate, Cost: 5, Smooth: true}
	a := c.granted(c.ask(r))
	c.news = append(c.news, func(t *windows.Table) error { return t.Learn(&r, a.At) })
	c.settle(a, 5, 1, rate...)
	c.hear(0, 2)
	c.hear(1, 1)
	c.pass(100 * time.Millisecond)
	r.Cost = 0
	if got, err := c.successor().Take(&r); err != nil || !got.Granted {
		t.Errorf("got %+v, %v, want the next unit after 100ms", got, err)
	}
}

// What precedes a Reset does not count in the next table, in whatever order the copies
// report, and what follows it does, also where a table that missed the Reset decided it.
func TestCopiesFromBeforeAResetDoNotUndoIt(t *testing.T) {
	rate := per(9, time.Minute)
	for _, freshFirst := range []bool{false, true} {
		c := newCopies(t, 3)
		c.take(4, rate...)
		pause := driver.Pause{Left: time.Minute}
		at := time.UnixMicro(c.now)
		if err := c.PauseAt("k", pause, at); err != nil {
			t.Fatal(err)
		}
		c.news = append(c.news, func(t *windows.Table) error { return t.PauseAt("k", pause, at) })
		c.hear(0, 2)
		c.hear(1, 2)
		c.pass(time.Second)
		reset := time.UnixMicro(c.now)
		if err := c.ResetAt("k", reset); err != nil {
			t.Fatal(err)
		}
		c.news = append(c.news, func(t *windows.Table) error { return t.ResetAt("k", reset) })
		c.pass(time.Second)
		c.granted(c.take(1, rate...))
		c.hear(2, 4) // the two others know nothing since the pause
		if freshFirst {
			c.others[0], c.others[2] = c.others[2], c.others[0]
		}
		next := c.successor()
		c.want(next, rate)
		if s, err := next.Inspect("k", rate); err != nil || s.Paused != nil {
			t.Errorf("the pause of before the reset is back: %+v, %v", s, err)
		}

		// A table that missed the Reset has decided since.
		missed := c.others[1]
		if err := missed.Learn(&driver.Request{Key: "k", Rates: rate, Cost: 2}, time.UnixMicro(c.now)); err != nil {
			t.Fatal(err)
		}
		for r := range next.Records() {
			if _, err := missed.Restore(r); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := missed.Inspect("k", rate); err != nil || s.Rates[0].Used != 2 || s.Paused != nil {
			t.Errorf("%+v, %v, want the 2 units of after the reset", s, err)
		}
	}
}

// A Reset is forgotten with the windows of what it has forgotten.
func TestAResetIsForgottenWithItsWindows(t *testing.T) {
	b := newBench(t)
	b.granted(b.take(1, per(1, time.Minute)...))
	for range 2 { // the second one finds nothing to forget
		if err := b.ResetAt("k", time.UnixMicro(b.now)); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := b.List(""); err != nil || len(all) != 0 {
		t.Errorf("the list has %+v, %v, want nothing", all, err)
	}
	records := 0
	for range b.Records() {
		records++
	}
	b.pass(time.Minute)
	for range b.Records() {
		records += 10
	}
	if records != 1 {
		t.Errorf("%d records, want one, and none after the window", records)
	}
	if err := b.ResetAt("unused", time.UnixMicro(b.now)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Inspect("k", nil); err != nil {
		t.Fatal(err)
	}
	if keys, _, _ := b.Size(); keys != 0 {
		t.Errorf("%d keys are kept, want none", keys)
	}
}

// A copy may learn of a grant from a record and from the news. It counts once, if its
// ticket is known; a debt and a pause are those of the other table.
func TestDecisionsOfAnotherTableAreApplied(t *testing.T) {
	b, rate := newBench(t), per(9, time.Minute)
	at := time.UnixMicro(b.now)
	for _, seq := range []uint64{1, 1, 2, 1} {
		if err := b.Learn(&driver.Request{Key: "k", Rates: rate, Cost: 1, Ticket: "a", Seq: seq}, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.SettleAt(&driver.Settlement{Key: "k", Rates: rate, At: at, Cost: 1, Actual: 3}, at); err != nil {
		t.Fatal(err)
	}
	if err := b.PauseAt("k", driver.Pause{Left: time.Second, Reason: "why"}, at); err != nil {
		t.Fatal(err)
	}
	s, err := b.Inspect("k", rate)
	if err != nil || s.Rates[0].Used != 4 || s.Paused == nil || s.Paused.Left != time.Second || s.Paused.Reason != "why" {
		t.Errorf("got %+v, %v, want 4 units used and a pause", s, err)
	}
	next := newBench(t)
	for range 2 {
		for _, r := range b.RecordsOf("k") {
			if _, err := next.Restore(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n, err := next.Inspect("k", rate); err != nil || n.Rates[0] != s.Rates[0] || n.Paused == nil || *n.Paused != *s.Paused {
		t.Errorf("the next table has %+v, %v, want %+v", n, err, s)
	}
}
