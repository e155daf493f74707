package driver_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/megaframework/mega/bus/driver"
)

func TestEveryFieldCrossesTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for name, m := range map[string]driver.Message{
			"a bare event":       {Kind: driver.Event, Subject: "a", Data: []byte("x")},
			"an event":           {Kind: driver.Event, Subject: "a.b", Data: []byte{}, Hops: 7, Deadline: now.Add(time.Minute), Header: driver.Header{"k": {"1", "2"}, driver.KeyID: {"42"}}},
			"a request":          {Kind: driver.Request, Subject: "a", Data: []byte{}, Deadline: now.Add(3 * time.Second), Hops: 1},
			"an answer":          {Kind: driver.Answer, Data: []byte("x"), Header: driver.Header{"k": {"v"}}},
			"the last answer":    {Kind: driver.Answer, Data: []byte{}, End: true},
			"an error":           {Kind: driver.Answer, Data: []byte("none left"), Err: &driver.RemoteError{Reason: "stock.gone", Message: "none left"}},
			"an error to repeat": {Kind: driver.Answer, Data: []byte("busy"), Err: &driver.RemoteError{Reason: "error", Message: "busy", Retryable: true}},
		} {
			got := driver.FromWire(m.Kind, m.Subject, maps.Clone(m.Wire()), m.Data)
			if !got.Deadline.Equal(m.Deadline) {
				t.Errorf("%s: the deadline is %v, want %v", name, got.Deadline, m.Deadline)
			}
			got.Deadline = m.Deadline
			if !reflect.DeepEqual(got, m) {
				t.Errorf("%s: got %+v, want %+v", name, got, m)
			}
		}
	})
}

func TestWireLeavesTheHeaderAlone(t *testing.T) {
	m := driver.Message{Header: driver.Header{"k": {"v"}}, Hops: 3}
	if wire := m.Wire(); len(wire) != 2 {
		t.Errorf("the wire has %v", wire)
	}
	if len(m.Header) != 1 {
		t.Errorf("the header has become %v", m.Header)
	}
}

func TestABudgetIsNeverNothing(t *testing.T) {
	m := driver.Message{Kind: driver.Request, Deadline: time.Now().Add(-time.Hour)}
	if got := m.Wire().Get("Bus-Budget"); got != "1" {
		t.Errorf("the budget is %q, want 1 ms", got)
	}
}

// A responder that ended before its caller would answer with the error of its context.
func TestABudgetIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]string{time.Millisecond: "1", time.Millisecond + 1: "2", 2 * time.Millisecond: "2", 5*time.Second - 1: "5000"} {
			m := driver.Message{Kind: driver.Request, Deadline: time.Now().Add(left)}
			if got := m.Wire().Get("Bus-Budget"); got != want {
				t.Errorf("the budget of %v is %s ms, want %s", left, got, want)
			}
		}
	})
}

// An event may wait for its server while the time of day is set, as at the start of a
// machine: its expiry keeps the remaining time (S24).
func TestAnExpiryCrossesAStepOfTheClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		m := driver.Message{Kind: driver.Event, Deadline: fromBefore(time.Now().Add(time.Minute), step)}
		got := driver.FromWire(driver.Event, "a", m.Wire(), nil)
		if left := time.Until(got.Deadline); left < 50*time.Second || left > time.Minute {
			t.Errorf("after a step of %v: %v are left of a minute", step, left)
		}
	}
}

// fromBefore returns t as it is after the time of day has stepped: its reading of the
// monotonic clock stays. A time.Time has the seconds since 1885 from bit 30 on.
func fromBefore(t time.Time, step time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) -= uint64(int64(step/time.Second) << 30)
	return t
}

func TestForeignLinesAreIgnored(t *testing.T) {
	m := driver.FromWire(driver.Event, "a", driver.Header{
		"Bus-Hops": {"-1"}, "Bus-Expires": {"soon"}, "Bus-Budget": {"9"}, "Bus-End": {"1"}, "Bus-Error": {"x"}, "Bus-New": {"?"}, "k": {"v"},
	}, nil)
	want := driver.Message{Kind: driver.Event, Subject: "a", Data: []byte{}, Header: driver.Header{"k": {"v"}}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got %+v, want %+v", m, want)
	}
}

func FuzzFromWire(f *testing.F) {
	f.Add(uint8(0), "3", "1700000000000", "5000", "code", []byte("text"))
	f.Add(uint8(0), "0", "12000000000000", "0", "", []byte(nil)) // in the year 2350
	f.Add(uint8(2), "256", "-1", "99999999999999999999", "", []byte(nil))
	f.Fuzz(func(t *testing.T, kind uint8, hops, expires, budget, code string, data []byte) {
		m := driver.FromWire(driver.Kind(kind%3), "a", driver.Header{
			"Bus-Hops": {hops}, "Bus-Expires": {expires}, "Bus-Budget": {budget}, "Bus-Error": {code}, "Bus-Retryable": {}, "k": {"v"},
		}, data)
		if len(m.Header) != 1 || m.Data == nil {
			t.Fatalf("got %+v", m)
		}
		again := driver.FromWire(m.Kind, "a", maps.Clone(m.Wire()), m.Data)
		if farthest := time.Now().Add(math.MaxInt64); m.Deadline.After(farthest) { // 292 years, the range of a time.Duration
			m.Deadline = farthest
		}
		if again.Hops != m.Hops || again.Deadline.Sub(m.Deadline).Abs() > time.Second || (again.Err == nil) != (m.Err == nil) {
			t.Fatalf("%+v became %+v", m, again)
		}
		if size, wire := m.Size(), wireSize(&m); size < wire {
			t.Fatalf("Size is %d, and %d bytes were written", size, wire)
		}
	})
}

// wireSize is what NATS writes for the message.
func wireSize(m *driver.Message) int {
	h := m.Wire()
	if len(h) == 0 {
		return len(m.Data)
	}
	n := len("NATS/1.0\r\n\r\n") + len(m.Data)
	for key, values := range h {
		for _, v := range values {
			n += len(key) + len(v) + len(": \r\n")
		}
	}
	return n
}

func TestSizeIsAtLeastTheWrittenLength(t *testing.T) {
	for _, m := range []driver.Message{
		{Data: make([]byte, 5)},
		{Data: make([]byte, 5), Header: driver.Header{"k": {"v", ""}, "long": {"value"}}},
		{Data: make([]byte, 5), Hops: 32, Deadline: time.Now().Add(100 * 365 * 24 * time.Hour)},
	} {
		size, wire := m.Size(), wireSize(&m)
		if size < wire || size > wire+64 {
			t.Errorf("%+v: Size is %d, and %d bytes are written", m, size, wire)
		}
	}
	if plain := (&driver.Message{Data: make([]byte, 5)}); plain.Size() != 5 {
		t.Errorf("a message without a header has size %d, want that of its data", plain.Size())
	}
}

func TestRoomContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, c := range []struct {
			ctx  context.Context
			m    driver.Message
			want time.Duration
		}{
			{t.Context(), driver.Message{}, 5 * time.Second},
			{long, driver.Message{}, time.Hour},
			{t.Context(), driver.Message{Deadline: now.Add(time.Second)}, 5 * time.Second},
			{t.Context(), driver.Message{Kind: driver.Request, Deadline: now.Add(time.Second)}, time.Second},
			{long, driver.Message{Kind: driver.Request, Deadline: now.Add(2 * time.Hour)}, time.Hour},
		} {
			bounded, cancel := driver.RoomContext(c.ctx, &c.m)
			if end, ok := bounded.Deadline(); !ok || end.Sub(now) != c.want {
				t.Errorf("%+v waits until %v, want %v", c.m, end.Sub(now), c.want)
			}
			cancel()
		}
	})
}

func TestMessageAboveTheLimitIsTooLarge(t *testing.T) {
	m := driver.Message{Subject: "a", Data: make([]byte, 10)}
	marked := m
	marked.Deadline = time.Now()
	for _, c := range []struct {
		m     driver.Message
		limit int
		fits  bool
	}{{m, 0, true}, {m, 10, true}, {m, 9, false}, {marked, 10, false}, {marked, marked.Size(), true}, {marked, marked.Size() - 1, false}} {
		err := c.m.CheckSize(c.limit)
		if (err == nil) != c.fits {
			t.Errorf("%d bytes, at most %d: %v", c.m.Size(), c.limit, err)
		}
		if large, ok := errors.AsType[*driver.TooLargeError](err); err != nil && (!ok || large.Subject != "a" || large.Limit != c.limit || large.Size != c.m.Size()) {
			t.Errorf("got %#v", err)
		}
	}
}
