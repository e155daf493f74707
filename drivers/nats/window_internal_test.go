package nats

import (
	"errors"
	"testing"
	"time"
	"unsafe"
)

// The window follows what the link carries in a second, whatever the size of
// the confirmations.
func TestWindowIsASecondOfTheLink(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	for name, step := range map[string]time.Duration{"often": 10 * time.Millisecond, "rarely": 900 * time.Millisecond, "very rarely": 3 * time.Second} {
		const rate = 400 << 10
		var w window
		now := at
		for range 1000 {
			before := now
			now = now.Add(step)
			w.add(before, now, int(step*rate/time.Second))
		}
		if got := w.size(now); got < rate*3/4 || got > rate*5/4 {
			t.Errorf("%s: the window is %d on a link of %d per second", name, got, rate)
		}
		if got := w.size(now.Add(2 * time.Second)); got != 64<<10 {
			t.Errorf("%s: after two quiet seconds the window is %d", name, got)
		}
		if w.add(now, now, 100<<20); w.size(now) != 4<<20 {
			t.Errorf("%s: the window is %d, and grows without bound", name, w.size(now))
		}
		now = now.Add(-time.Hour) // the clock steps back
		w.add(now, now, 1)
		w.size(now)
	}
}

// A connection is closed when no byte has moved for 15 s, and not earlier (S29).
func TestSilenceIs15SecondsByDefault(t *testing.T) {
	if got := (Config{}).withDefaults().silence; got != 15*time.Second {
		t.Errorf("a silent connection ends after %v, want 15s", got)
	}
}

// The pauses between attempts to connect differ, grow, and have a bound (S23).
func TestPausesBetweenAttemptsHaveJitterAndABound(t *testing.T) {
	for attempt, bound := range map[int]time.Duration{0: 50 * time.Millisecond, 3: 400 * time.Millisecond, 100: 5 * time.Second} {
		seen := map[time.Duration]bool{}
		for range 100 {
			pause := backoff(attempt)
			seen[pause] = true
			if pause < bound/4 || pause > bound {
				t.Errorf("before attempt %d the pause is %v, want up to %v", attempt, pause, bound)
			}
		}
		if len(seen) < 10 {
			t.Errorf("100 pauses before attempt %d have %d lengths", attempt, len(seen))
		}
	}
}

// The limit of the next connection is one byte less than the largest message
// that was not confirmed, if the server has closed the connection because of a
// size.
func TestLimitThatIsNotAnnouncedIsLearned(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	b.learn(errors.New("nats: Maximum Payload Violation"), sequence{largest: 2000})
	if b.learned != 1999 {
		t.Errorf("the limit is %d, want 1999", b.learned)
	}
	b.learn(errors.New("EOF"), sequence{largest: 2000})
	if b.learned != 0 {
		t.Errorf("after another end the limit is %d", b.learned)
	}
}

// What was confirmed before a step of the wall clock is forgotten as soon as
// otherwise.
func TestWindowIgnoresStepsOfTheWallClock(t *testing.T) {
	var w window
	start := time.Now()
	w.add(start, start, 1<<20)
	now := start.Add(2 * time.Second)
	const second = 1 << 30 // in the first field of a time.Time that has a monotonic reading
	*(*uint64)(unsafe.Pointer(&now)) -= 3600 * second
	if got := w.size(now); got != 64<<10 {
		t.Errorf("after two quiet seconds and a step back the window is %d", got)
	}
}
