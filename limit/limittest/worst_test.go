package limittest_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/megaframework/mega/limit/limittest"
)

// The checker finds the excess of a token bucket, so that it is known to work.
func TestWorstFindsTheExcessOfATokenBucket(t *testing.T) {
	const n, per = 10, time.Second
	start := time.Unix(0, 0)
	var grants []limittest.Grant
	tokens := float64(n)
	for i := range 100 { // ten times as fast as the bucket is filled
		at := start.Add(time.Duration(i) * per / 100)
		tokens = math.Min(tokens+0.1, n)
		if tokens >= 1 {
			tokens--
			grants = append(grants, limittest.Grant{From: at, To: at, Units: 1})
		}
	}
	if worst, _ := limittest.Worst(grants, per); worst < 2*n-2 {
		t.Errorf("the worst interval holds %d, want nearly %d", worst, 2*n)
	}
}

func TestWorstCountsHalfOpenIntervals(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	for _, tt := range []struct {
		name   string
		grants []limittest.Grant
		want   int
	}{
		{"none", nil, 0},
		{"a whole Per apart", []limittest.Grant{{at(0), at(0), 2}, {at(100), at(100), 3}}, 3},
		{"less than a Per apart", []limittest.Grant{{at(99), at(99), 3}, {at(0), at(0), 2}}, 5},
		{"perhaps a Per apart", []limittest.Grant{{at(0), at(0), 2}, {at(90), at(110), 3}}, 3},
		{"in the middle", []limittest.Grant{{at(0), at(0), 1}, {at(60), at(60), 4}, {at(120), at(120), 4}, {at(200), at(200), 1}}, 8},
	} {
		if got, _ := limittest.Worst(tt.grants, 100*time.Millisecond); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// The sweep finds the same as counting each interval does.
func TestWorstTriesEveryInterval(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		var grants []limittest.Grant
		for range 1 + random.IntN(30) {
			from := random.IntN(60)
			grants = append(grants, limittest.Grant{From: at(from), To: at(from + random.IntN(15)), Units: 1 + random.IntN(9)})
		}
		want := 0
		for first := range 60 {
			sum := 0
			for _, g := range grants {
				if !g.From.Before(at(first)) && g.To.Before(at(first+10)) {
					sum += g.Units
				}
			}
			want = max(want, sum)
		}
		if got, _ := limittest.Worst(grants, 10*time.Millisecond); got != want {
			t.Fatalf("seed %d: got %d, want %d", seed, got, want)
		}
	}
}
