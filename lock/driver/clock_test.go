package driver

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestNowGoesWithTheClockOfAMachineThatIsAwake(t *testing.T) {
	plain, before := time.Now(), Now()
	for time.Since(plain) < 20*time.Millisecond {
		if d := Now().Sub(before) - time.Since(plain); d.Abs() > 10*time.Millisecond {
			t.Fatalf("the clocks ran %v apart", d)
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
