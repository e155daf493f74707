package console

import (
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
)

func counted(acquired, received uint64) counters {
	var c counters
	c.locks.Acquired, c.messages.Total.Received = acquired, received
	c.messages.Subs = []bus.SubStats{
		{SubID: bus.SubID{Pattern: "a", Name: "one"}, Received: received}, {SubID: bus.SubID{Pattern: "a", Group: "g"}, Received: 3 * received},
	}
	return c
}

func TestHistoryAddsTheRatesOfProcessesThatItHasSeenBefore(t *testing.T) {
	var h history
	at := time.Now()
	one, two, three := source{1, 10}, source{2, 20}, source{2, 30}
	h.add(sample{at, map[source]counters{one: counted(100, 0), two: counted(1000, 8)}})
	if got := h.series(func(p point) float64 { return p.acquired }); len(got) != 0 {
		t.Errorf("one sample gives %v", got)
	}
	// Worker 2 was replaced: what its new process did before is not of this
	// interval.
	h.add(sample{at.Add(2 * time.Second), map[source]counters{one: counted(120, 4), three: counted(7, 1)}})
	h.add(sample{at.Add(4 * time.Second), map[source]counters{one: counted(120, 10), three: counted(11, 3)}})
	if got := h.series(func(p point) float64 { return p.acquired }); len(got) != 2 || got[0] != 10 || got[1] != 2 {
		t.Errorf("acquired per second: %v, want 10 and 2", got)
	}
	if got, group := h.perSecond(bus.SubID{Pattern: "a"}), h.perSecond(bus.SubID{Pattern: "a", Group: "g"}); got != 4 || group != 12 {
		t.Errorf("messages per second: %v and %v by the group, want 4 and 12", got, group)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var h history
	at := time.Now()
	for i := range 3 * points {
		h.add(sample{at.Add(time.Duration(i) * interval), map[source]counters{{}: counted(uint64(i), 0)}})
	}
	if n := len(h.series(func(p point) float64 { return p.acquired })); n != points {
		t.Errorf("%d points, want %d", n, points)
	}
}

func TestPlotsStayInsideTheirFrame(t *testing.T) {
	if p := plotOf("x", nil, rateText); !p.Empty || p.Now != "–" {
		t.Errorf("without a point: %+v", p)
	}
	if p := plotOf("x", []float64{0, 0}, rateText); p.Line != "298.0,59.0 300.0,59.0" {
		t.Errorf("at rest: %q", p.Line)
	}
	if p := plotOf("x", []float64{5, 10}, rateText); p.Line != "298.0,31.0 300.0,3.0" || p.Now != "10" {
		t.Errorf("with a peak: %+v", p)
	}
	var h lock.Histogram
	if b := barsOf("x", h); len(b.Bars) != 0 {
		t.Errorf("an empty histogram has bars: %+v", b)
	}
	h.Counts[0], h.Counts[3], h.Counts[lock.Buckets-1] = 1, 1000, 2
	b := barsOf("x", h)
	if len(b.Bars) != lock.Buckets || b.Bars[0].Title != "below 1µs: 1" || b.Bars[3].Title != "4µs to 8µs: 1\u202f000" || b.Slow != "< 8µs" {
		t.Errorf("bars %+v", b)
	}
	for _, x := range b.Bars {
		if x.X < 0 || x.X+x.Width > plotWidth || x.Y < 0 || x.Y+x.Height > plotHeight {
			t.Errorf("outside of the frame: %+v", x)
		}
	}
}

func TestNumbersAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Nanosecond: "2µs", 1234 * time.Microsecond: "1ms", 9949 * time.Millisecond: "9.9s", 75 * time.Second: "1m15s",
		50 * time.Hour: "2d2h", lock.Forever: "∞",
	} {
		if got := short(d); got != want {
			t.Errorf("%d: %q, want %q", int64(d), got, want)
		}
	}
	if got := count(uint64(1234567)); got != "1\u202f234\u202f567" {
		t.Errorf("got %q", got)
	}
}

func TestSlotsThatNeedAnOperatorAreShown(t *testing.T) {
	all := make([]slotRow, 1000)
	for i := range all {
		all[i] = slotRow{Number: i, State: string(lock.SlotFree)}
	}
	all[3].State, all[999].State = string(lock.SlotHeld), string(lock.SlotWithdrawn)
	shown, more := shownSlotRows(all)
	if len(shown) != shownSlots || more != 1000-shownSlots || shown[0].Number != 0 || shown[3].State != string(lock.SlotHeld) || shown[shownSlots-1].Number != 999 {
		t.Errorf("%d shown and %d more: %v", len(shown), more, shown)
	}
}
