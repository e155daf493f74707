package driver

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestNowGoesWithTheClockOfAMachineThatIsAwake(t *testing.T) {
	begin, before, begun := time.Now(), Now(), time.Now()
	for time.Since(begin) < 20*time.Millisecond {
		// However long this goroutine stands still in between, its clock is read
		// between two readings of the plain one.
		end, now, ended := time.Now(), Now(), time.Now()
		took, least, most := now.Sub(before), end.Sub(begun), ended.Sub(begin)
		if took < least-time.Millisecond || took > most+time.Millisecond {
			t.Fatalf("%v have passed, and between %v and %v on the plain clock", took, least, most)
		}
	}
}

func TestNowIsFakeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := Now()
		time.Sleep(time.Hour)
		if got := Now().Sub(before); got != time.Hour {
			t.Errorf("an hour of fake time was %v", got)
		}
	})
}

func TestDeadlineIsCountedFromTheRequest(t *testing.T) {
	sent := Now()
	if got, want := Deadline(sent, 10*time.Second).Sub(sent), 9798*time.Millisecond; got != want {
		t.Errorf("10s are sure for %v, want %v", got, want)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
