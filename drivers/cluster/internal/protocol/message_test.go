package protocol

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/megaframework/mega/bus/driver"
)

// bodyOf is the body of a frame, as its receiver sees it.
func bodyOf(f *Frame) []byte {
	defer f.Free()
	return f.Body()
}

// crossed is m after it was written and read.
func crossed(t *testing.T, m driver.Message) driver.Message {
	t.Helper()
	d := NewDecoder(bodyOf(AddMessage(Begin(TypeEvent), &m)))
	got := ReadMessage(m.Kind, d.String(), &d)
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestEveryFieldOfAMessageCrosses(t *testing.T) {
	now := time.Now()
	for name, m := range map[string]driver.Message{
		"a bare event":       {Kind: driver.Event, Subject: "a", Data: []byte("x")},
		"nothing":            {Kind: driver.Event, Subject: "a", Data: []byte{}},
		"an event":           {Kind: driver.Event, Subject: "a.b", Data: []byte{}, Hops: 7, Deadline: now.Add(time.Minute), Header: driver.Header{"k": {"1", "2"}, "l": {""}, driver.KeyID: {"42"}}},
		"a request":          {Kind: driver.Request, Subject: "a", Data: []byte{}, Deadline: now.Add(3 * time.Second), Hops: 1},
		"a late request":     {Kind: driver.Request, Subject: "a", Data: []byte{}, Deadline: now.Add(-time.Hour)},
		"an answer":          {Kind: driver.Answer, Subject: "a", Data: []byte("x"), Header: driver.Header{"k": {"v"}}},
		"the last answer":    {Kind: driver.Answer, Subject: "a", Data: []byte{}, End: true},
		"an error":           {Kind: driver.Answer, Subject: "a", Data: []byte("none left"), Err: &driver.RemoteError{Reason: "stock.gone", Message: "none left"}},
		"an error to repeat": {Kind: driver.Answer, Subject: "a", Data: []byte("busy"), Err: &driver.RemoteError{Reason: "error", Message: "busy", Retryable: true}},
		"a large one":        {Kind: driver.Event, Subject: strings.Repeat("x", 255), Data: make([]byte, 1<<20)},
	} {
		began := time.Now()
		got := crossed(t, m)
		if d := got.Deadline.Sub(m.Deadline).Abs(); d > time.Since(began)+time.Millisecond {
			t.Errorf("%s: the deadline has moved by %v", name, d)
		}
		got.Deadline = m.Deadline
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v, want %+v", name, got, m)
		}
	}
}

// The remaining time crosses, also if the time of day was set since the deadline was
// computed (S12).
func TestADeadlineCrossesAStepOfTheClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		m := driver.Message{Kind: driver.Request, Subject: "a", Data: []byte{}, Deadline: fromBefore(time.Now().Add(time.Minute), step)}
		if left := time.Until(crossed(t, m).Deadline); left < 50*time.Second || left > time.Minute {
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

func TestADeadlineInAThousandYearsIsNone(t *testing.T) {
	if got := crossed(t, driver.Message{Subject: "a", Deadline: time.Now().AddDate(1000, 0, 0)}); !got.Deadline.IsZero() {
		t.Errorf("the deadline is %v", got.Deadline)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(bodyOf(AddMessage(Begin(TypeEvent), &driver.Message{Subject: "a", Hops: 3, Deadline: time.Now(), Header: driver.Header{"k": {"v", "w"}}, Data: []byte("x")})))
	f.Add([]byte{1, 'a', 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{1, 'a', 4, 0x80, 0x80, 0x80, 0x04})
	f.Fuzz(func(t *testing.T, body []byte) {
		d := NewDecoder(body)
		m := ReadMessage(driver.Event, d.String(), &d)
		if d.Err() != nil {
			return
		}
		again := crossed(t, m)
		again.Deadline = m.Deadline
		if again.Subject != m.Subject || again.Hops != m.Hops || len(again.Header) != len(m.Header) || string(again.Data) != string(m.Data) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}
