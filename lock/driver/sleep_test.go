package driver

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestTheEstimateOfSleepFollowsTheWallClockForwardOnly(t *testing.T) {
	const ms, h = time.Millisecond, time.Hour
	for _, x := range []struct {
		name   string
		drifts []time.Duration
		want   time.Duration
	}{
		{"a machine that is awake", []time.Duration{0, 1 * ms, -1 * ms, 99 * ms, -99 * ms}, 0},
		{"a suspend", []time.Duration{0, h, h + ms}, h},
		{"two suspends", []time.Duration{h, 3 * h}, 3 * h},
		{"a step forward", []time.Duration{h}, h},
		{"a step back", []time.Duration{-h, -h - ms}, 0},
		{"a step forward and back again", []time.Duration{h, 0}, h},
		{"a step back, then a suspend", []time.Duration{-h, -h + 10*time.Minute}, 10 * time.Minute},
		{"a step forward and back, then a suspend", []time.Duration{h, 0, 10 * time.Minute}, h + 10*time.Minute},
		{"a clock that is slewed ahead", []time.Duration{40 * ms, 80 * ms, 120 * ms, 160 * ms}, 120 * ms},
	} {
		var s sleep
		var got time.Duration
		for _, d := range x.drifts {
			got = s.after(d)
		}
		if got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}

func TestTheEstimateOfSleepNeverShrinks(t *testing.T) {
	var s sleep
	var last, drift time.Duration
	for range 10_000 {
		drift += rand.N(2*time.Second) - time.Second
		got := s.after(drift)
		if got < last {
			t.Fatalf("it went from %v to %v", last, got)
		}
		last = got
	}
}
