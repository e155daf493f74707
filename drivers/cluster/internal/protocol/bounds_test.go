package protocol

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/internal/windows"
	limits "github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock/driver"
)

// A process that comes to the next hub reports its leases. The report keeps a key for one TTL
// at most, and a value with which a table cannot count ends the connection.
func TestReportsAreBounded(t *testing.T) {
	lease := func(change func(*driver.Grant, *driver.Request)) (table.Lease, error) {
		r, c := aRequest(), ReadClock()
		r.Slots = 3
		g := driver.Grant{Key: "k", Token: "t", Fence: 9, Slot: 2, TTL: time.Second, Deadline: driver.Now()}
		change(&g, &r)
		f := Begin(LockHeld)
		AddLease(f, &g, &r, c)
		d := NewDecoder(bodyOf(f))
		return ReadLease(&d, c, &driver.Holder{})
	}
	l, err := lease(func(g *driver.Grant, _ *driver.Request) { g.Deadline = driver.Now().Add(time.Hour) })
	if left := l.Expires.Sub(driver.Now()); err != nil || left > l.Grant.TTL {
		t.Errorf("the report of a lease of %v keeps it for %v: %v", l.Grant.TTL, left, err)
	}
	for name, change := range map[string]func(*driver.Grant, *driver.Request){
		"the largest fence":    func(g *driver.Grant, _ *driver.Request) { g.Fence = ^uint64(0) },
		"too many fences":      func(g *driver.Grant, _ *driver.Request) { g.Fences = maxFences + 1 },
		"a slot out of bounds": func(g *driver.Grant, _ *driver.Request) { g.Slot = maxSlots },
		"no slots":             func(_ *driver.Grant, r *driver.Request) { r.Slots = 0 },
		"too many slots":       func(_ *driver.Grant, r *driver.Request) { r.Slots = maxSlots + 1 },
		"no key":               func(g *driver.Grant, _ *driver.Request) { g.Key = "" },
		"a long key":           func(g *driver.Grant, _ *driver.Request) { g.Key = strings.Repeat("k", maxKey+1) },
		"no token":             func(g *driver.Grant, _ *driver.Request) { g.Token = "" },
		"a long token":         func(g *driver.Grant, _ *driver.Request) { g.Token = strings.Repeat("t", maxToken+1) },
		"no TTL":               func(g *driver.Grant, _ *driver.Request) { g.TTL = 0 },
		"a long TTL":           func(g *driver.Grant, _ *driver.Request) { g.TTL = maxTTL + 1 },
	} {
		if _, err := lease(change); err == nil {
			t.Errorf("a lease with %s is accepted", name)
		}
	}
	if _, err := lease(func(g *driver.Grant, r *driver.Request) {
		g.Fences, g.Slot, r.Slots, g.TTL = maxFences, maxSlots-1, maxSlots, maxTTL
		g.Key, g.Token = strings.Repeat("k", maxKey), strings.Repeat("t", maxToken)
	}); err != nil {
		t.Errorf("a lease at the bounds: %v", err)
	}
	record := func(change func(*table.Record)) error {
		r := table.Record{Key: "k", Run: driver.Run{Tick: 1, Every: time.Minute, Outcome: "ok"}, Life: time.Hour}
		change(&r)
		d := NewDecoder(bodyOf(AddRecord(Begin(LockRun), &r)))
		_, err := ReadRecord(&d)
		return err
	}
	for name, change := range map[string]func(*table.Record){
		"no key":                func(r *table.Record) { r.Key = "" },
		"a short interval":      func(r *table.Record) { r.Run.Every = time.Microsecond - 1 },
		"a long interval":       func(r *table.Record) { r.Run.Every = maxEvery + 1 },
		"a long outcome":        func(r *table.Record) { r.Run.Outcome = driver.Outcome(strings.Repeat("o", maxToken+1)) },
		"a life before its end": func(r *table.Record) { r.Life = -1 },
		"a life that is long":   func(r *table.Record) { r.Life = maxLife + 1 },
	} {
		if record(change) == nil {
			t.Errorf("a record with %s is accepted", name)
		}
	}
	if err := record(func(r *table.Record) { r.Run.Every, r.Life = maxEvery, maxLife }); err != nil {
		t.Errorf("a record at the bounds: %v", err)
	}
	d := NewDecoder([]byte{2})
	if d.Bool(); d.Err() == nil {
		t.Error("a boolean value of 2 is accepted")
	}
}

// A copy of a limit with which a table cannot count is refused.
func TestLimitRecordsAreBounded(t *testing.T) {
	record := func(change func(*windows.LogRecord)) error {
		l := windows.LogRecord{
			Per: 1, N: 1,
			Grants:   []windows.MarkRecord{{At: 1, Units: 1}, {At: 1, Units: 1}},
			Returned: []windows.MarkRecord{{At: 1, Units: 1}},
		}
		change(&l)
		return CheckLimitRecord(&windows.Record{Key: "k", Logs: []windows.LogRecord{l}})
	}
	if err := record(func(*windows.LogRecord) {}); err != nil {
		t.Errorf("a record at the bounds: %v", err)
	}
	for name, change := range map[string]func(*windows.LogRecord){
		"no interval":               func(l *windows.LogRecord) { l.Per = 0 },
		"no units per interval":     func(l *windows.LogRecord) { l.N = 0 },
		"a grant of nothing":        func(l *windows.LogRecord) { l.Grants[1].Units = 0 },
		"grants in another order":   func(l *windows.LogRecord) { l.Grants[1].At = 0 },
		"a grant before the epoch":  func(l *windows.LogRecord) { l.Grants[0].At = -1 },
		"nothing that was returned": func(l *windows.LogRecord) { l.Returned[0].Units = 0 },
		"too many units":            func(l *windows.LogRecord) { l.Grants[1].Units = maxUnits + 1 },
		"too many returned units":   func(l *windows.LogRecord) { l.Returned[0].Units = maxUnits + 1 },
		"a grant in the far future": func(l *windows.LogRecord) { l.Grants[1].At = maxAt + 1 },
		"units of the far future":   func(l *windows.LogRecord) { l.Returned[0].At = maxAt + 1 },
		"units before the epoch":    func(l *windows.LogRecord) { l.Returned[0].At = -1 },
		"a late last grant":         func(l *windows.LogRecord) { l.Last = maxAt + 1 },
		"a long interval":           func(l *windows.LogRecord) { l.Per = maxPer.Microseconds() + 1 },
		"too many per interval":     func(l *windows.LogRecord) { l.N = limits.MaxN + 1 },
	} {
		if record(change) == nil {
			t.Errorf("a record with %s is accepted", name)
		}
	}
	if CheckLimitRecord(&windows.Record{Key: "k", Logs: make([]windows.LogRecord, 4*limits.MaxRates+1)}) == nil {
		t.Error("a record with many logs is accepted")
	}
}

// A key has its calls answered after every record that is accepted: no sum of its units
// overflows.
func TestTableCountsWithEachAcceptedRecord(t *testing.T) {
	for _, units := range []int64{1, maxUnits, math.MaxInt64} {
		w := windows.New(NodeMicros)
		now := NodeMicros()
		l := windows.LogRecord{Per: maxPer.Microseconds(), N: 1, Last: now, Gone: now - 2}
		l.Grants = []windows.MarkRecord{{At: now - 1, Units: 1}, {At: now, Units: units}}
		r := windows.Record{Key: "k", Logs: []windows.LogRecord{l}}
		if CheckLimitRecord(&r) == nil {
			if _, err := w.Restore(r); err != nil {
				t.Error(err)
			}
			a, err := w.Take(&limits.Request{Key: "k", Cost: 1, Rates: []limits.Rate{{N: 1, Per: maxPer}}})
			if a.Granted || err != nil {
				t.Errorf("after grants of %d units, one more is granted: %t, %v", units, a.Granted, err)
			}
		}
		w.Close()
	}
}

// A hub of an earlier build gives only the times of grants. Its pauses begin when they arrive.
func TestPauseOfAnEarlierHubBeginsNow(t *testing.T) {
	w := windows.New(NodeMicros)
	defer w.Close()
	if err := (&News{Pause: &LimitOf{Key: "k", Pause: limits.Pause{Left: time.Hour}}}).Apply(w); err != nil {
		t.Fatal(err)
	}
	s, err := w.Inspect("k", nil)
	if err != nil || s.Paused == nil || s.Paused.Left > time.Hour || s.Paused.Left < time.Hour-time.Minute {
		t.Errorf("paused: %+v, %v", s.Paused, err)
	}
}

// A body that is too long fails its own call, and nothing of it is sent.
func TestBodyThatIsTooLongFailsItsCallAlone(t *testing.T) {
	here, there := newLines(t)
	var asks, serves Calls
	asks.Open(here, nil, slog.New(slog.DiscardHandler))
	serves.Open(there, func(_ context.Context, name string, body []byte) ([]byte, error) {
		if name == "long" {
			return make([]byte, maxBody+1), nil
		}
		return body, nil
	}, slog.New(slog.DiscardHandler))
	read := func(l *Line, c *Calls) {
		_ = l.Read(func(typ Type, body []byte) error {
			d := NewDecoder(body)
			switch typ {
			case TypeCall:
				c.Serve(&d)
			case TypeResult:
				c.Result(&d)
			default:
				t.Errorf("a frame of type %d", typ)
			}
			return nil
		}, func() {})
	}
	go read(here, &asks)
	go read(there, &serves)
	if _, err := asks.Call(t.Context(), "echo", make([]byte, maxBody+1)); err == nil {
		t.Error("a call with a long body has an answer")
	} else if long, ok := errors.AsType[*BodyError](err); !ok || long.Length != maxBody+1 {
		t.Errorf("a call with a long body: %v", err)
	}
	if _, err := asks.Call(t.Context(), "long", nil); err == nil {
		t.Error("a call with a long answer has one")
	} else if failed, ok := errors.AsType[*CallError](err); !ok || failed.Name != "long" || !strings.Contains(failed.Text, "bytes") {
		t.Errorf("a call with a long answer: %v", err)
	}
	if b, err := asks.Call(t.Context(), "echo", []byte("x")); err != nil || string(b) != "x" {
		t.Errorf("the next call: %q, %v", b, err)
	}
	asks.mu.Lock()
	if n := len(asks.asked); n > 0 {
		t.Errorf("%d calls are still registered", n)
	}
	asks.mu.Unlock()
	serves.Fail(ErrClosed)
	serves.Wait()
	asks.Fail(ErrClosed)
	if _, err := asks.Call(t.Context(), "echo", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after the end: %v", err)
	}
}
