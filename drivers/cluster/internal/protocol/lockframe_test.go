package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

func aRequest() driver.Request {
	return driver.Request{
		Key: "k", Token: "0123456789012345678901", TTL: time.Second, Wait: -1, Slots: 3, Fences: 17, NoRenew: true,
		Holder: driver.Holder{App: "web", Host: "h", PID: 7, Label: "l", Request: "r", Worker: 2, Since: time.Unix(1, 2)},
	}
}

func TestRequestsAndLeasesArriveAsTheyWereSent(t *testing.T) {
	r := aRequest()
	f := Begin(LockAsk)
	AddRequest(f, &r)
	b := bodyOf(f)
	d := NewDecoder(b)
	if got, err := ReadRequest(&d, &driver.Holder{}); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v, %v; want %+v", got, err, r)
	}
	c := ReadClock()
	g := driver.Grant{Key: "k", Token: r.Token, Fence: 9, Fences: 17, Slot: 2, TTL: time.Second, Deadline: driver.Now().Add(time.Second / 2)}
	f = Begin(LockHeld)
	AddLease(f, &g, &r, c)
	b = bodyOf(f)
	d = NewDecoder(b)
	l, err := ReadLease(&d, c, &driver.Holder{})
	if err != nil || l.Slots != 3 || !reflect.DeepEqual(l.Holder, r.Holder) || l.Expires.Sub(g.Deadline) != driver.Margin(g.TTL) {
		t.Errorf("got %+v, %v", l, err)
	}
	g.Deadline = time.Time{}
	if !reflect.DeepEqual(l.Grant, g) {
		t.Errorf("got %+v, want %+v", l.Grant, g)
	}
}

func TestErrorsArriveAsTheyWereSent(t *testing.T) {
	for _, want := range []error{
		&driver.NotAcquiredError{Key: "k", Position: 3, Full: true, Holders: []driver.Holding{{Holder: driver.Holder{PID: 1}}, {Holder: driver.Holder{App: "a", Worker: 4}, Slot: 2, Fence: 9, Left: time.Second}}},
		&driver.LostError{Key: "k", Cause: driver.Expired},
		&driver.LostError{Key: "k", Cause: driver.Forced, Reason: "deploy", By: driver.Holder{Host: "h", PID: 9}},
	} {
		b := bodyOf(AddError(Begin(LockAnswer), want))
		d := NewDecoder(b)
		if got := ReadError(d.Byte(), &d, "k"); !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v, want %#v", got, want)
		}
	}
	b := bodyOf(AddError(Begin(LockAnswer), errors.New("out of order")))
	d := NewDecoder(b)
	if got := ReadError(d.Byte(), &d, "k"); !strings.Contains(got.Error(), "out of order") {
		t.Error(got)
	}
}

// A short frame can claim many holders.
func TestAFrameThatIsCutOffTakesNoMemoryForItsHolders(t *testing.T) {
	const claimed = 100_000
	b := bodyOf(Begin(LockRefused).Byte(verdictBusy).Uint(0).Bool(false).Uint(claimed).Rest(bytes.Repeat([]byte{0xff}, claimed)))
	d := NewDecoder(b)
	busy, ok := errors.AsType[*driver.NotAcquiredError](ReadError(d.Byte(), &d, "k"))
	if !ok || d.Err() == nil {
		t.Fatalf("%v, and %v", busy, d.Err())
	}
	if n := len(busy.Holders); n > 1 {
		t.Errorf("it has %d holders", n)
	}
}

// Only a code, or the whole text of an earlier build, stands for a take-over.
func TestATakeOverArrivesAsACode(t *testing.T) {
	read := func(f *Frame) error {
		d := NewDecoder(bodyOf(f))
		err := ReadFailure(d.Byte(), &d, "k")
		if d.Err() != nil || d.Left() > 0 {
			t.Errorf("%v, and %d bytes are left, %v", err, d.Left(), d.Err())
		}
		return err
	}
	text := table.ErrShut.Error()
	begin := func() *Frame { return Begin(LockAnswer) }
	for name, x := range map[string]struct {
		f    *Frame
		want bool
	}{
		"a take-over":                         {AddFailure(begin(), fmt.Errorf("begin: %w", table.ErrShut)), true},
		"another failure with the text":       {AddFailure(begin(), errors.New(text)), false},
		"a take-over of an earlier build":     {AddError(begin(), table.ErrShut), true},
		"another failure of an earlier build": {AddError(begin(), errors.New("no: "+text)), false},
	} {
		if err := read(x.f); errors.Is(err, table.ErrShut) != x.want || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An earlier build compares the text, and ignores the code.
	d := NewDecoder(bodyOf(AddFailure(begin(), table.ErrShut)))
	if err := ReadError(d.Byte(), &d, "k"); d.Err() != nil || !strings.Contains(err.Error(), text) {
		t.Errorf("an earlier build reads %v, %v", err, d.Err())
	}
}

func TestALongListArrivesInParts(t *testing.T) {
	want := make([]driver.State, 200)
	for i := range want {
		want[i] = driver.State{Key: fmt.Sprint("key-", i), Size: 2}
		for j := range i {
			want[i].Waiters = append(want[i].Waiters, driver.Holder{App: "web", PID: j})
		}
		want[i].Holders = []driver.Holding{{Holder: driver.Holder{PID: i}, Slot: 1, Fence: 5, Left: time.Minute}}
		want[i].Slots = []driver.SlotState{
			{Status: driver.SlotResting, Until: time.UnixMicro(5), Reason: driver.LeftDied, LastHolder: driver.Holder{PID: i}},
			{Number: 1, Status: driver.SlotWithdrawn, Reason: "disk full", Note: "warm", Strikes: 3},
		}
	}
	frames := AddStates(1, want, true, 4096)
	if len(frames) < 10 {
		t.Errorf("it has %d parts", len(frames))
	}
	var got []driver.State
	for i, f := range frames {
		if f.Len() > 5000 {
			t.Errorf("a part has %d bytes", f.Len())
		}
		b := bodyOf(f)
		d := NewDecoder(b)
		if _, v := d.Uint(), d.Byte(); (v == VerdictDone) != (i == len(frames)-1) {
			t.Errorf("part %d of %d begins with %d", i, len(frames), v)
		}
		if got = ReadStates(&d, got); d.Err() != nil {
			t.Fatal(d.Err())
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("what has arrived is something else")
	}
}

func TestAnInstantIsToldToOthers(t *testing.T) {
	here, there := ReadClock(), ReadClock()
	want := driver.Now().Add(time.Second)
	if got := there.Time(here.Nanos(want)); got.Sub(want).Abs() > time.Millisecond {
		t.Errorf("it has become %v later", got.Sub(want))
	}
}
