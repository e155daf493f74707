package measure

import (
	"math"
	"reflect"
	"testing"
	"time"
)

func TestQuantileIsOneOfTheValues(t *testing.T) {
	values := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.25: 2, 0.5: 3, 0.75: 4, 1: 5} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile(%v) = %d, want %d", q, got, want)
		}
	}
	if got := Median([]float64(nil)); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
	if values[0] != 5 {
		t.Error("the values were sorted in place")
	}
}

func TestJainIsOneForEqualSharesAndFallsToOneNth(t *testing.T) {
	for _, tt := range []struct {
		shares []float64
		want   float64
	}{
		{[]float64{7, 7, 7, 7}, 1},
		{[]float64{9, 0, 0}, 1.0 / 3},
		{[]float64{3, 1}, 0.8},
		{[]float64{0, 0}, 0},
	} {
		if got := Jain(tt.shares); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("jain(%v) = %v, want %v", tt.shares, got, tt.want)
		}
	}
}

func TestClaimJudgesTheMedianOfRatiosWithinOneRepetition(t *testing.T) {
	s := Samples{
		Mega:        {10, 40, 12}, // a noisy second repetition, for both
		"redislock": {10, 40, 10},
	}
	c := s.Ratio("acquire", "µs", "redislock", "redislock")
	if c.Value != 1 || c.Mega != 12 || c.Others[0] != (Figure{"redislock", 10}) {
		t.Errorf("got %+v", c)
	}
}

func TestClaimIsMissedOnTheWrongSideOfItsBound(t *testing.T) {
	for _, tt := range []struct {
		claim Claim
		want  bool
	}{
		{Claim{Value: 1.2}.AtMost(1.3), false},
		{Claim{Value: 1.4}.AtMost(1.3), true},
		{Claim{Value: 9}.AtLeast(8), false},
		{Claim{Value: 7}.AtLeast(8), true},
		{Claim{Value: 7}, false},
	} {
		if got := tt.claim.Missed(); got != tt.want {
			t.Errorf("%+v: missed is %v", tt.claim, got)
		}
	}
}

func TestWorseKnowsWhichWayIsUp(t *testing.T) {
	if got := (Claim{Value: 1.5}).AtMost(2).Worse(1); got != 0.5 {
		t.Errorf("a cost that grew by half: %v", got)
	}
	if got := (Claim{Value: 5}).AtLeast(2).Worse(10); got != 0.5 {
		t.Errorf("a rate that halved: %v", got)
	}
	if got := (Claim{Value: 5}).AtLeast(2).Worse(4); got >= 0 {
		t.Errorf("a rate that grew: %v", got)
	}
}

func TestRunsOfARowAreCombinedByTheirMedians(t *testing.T) {
	run := func(mega, other, value float64) []Claim {
		return []Claim{{Name: "cost", Mega: mega, Others: []Figure{{"peer", other}}, Value: value, Low: 9, High: 9, Bound: 1.2}}
	}
	runs := [][]Claim{run(10, 100, 1.3), run(30, 300, 1.1), run(20, 200, 1.2)}
	got := Combine(runs)
	want := Claim{Name: "cost", Mega: 20, Others: []Figure{{"peer", 200}}, Value: 1.2, Low: 1.1, High: 1.3, Bound: 1.2}
	if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if first := runs[0][0]; first.Others[0].Value != 100 {
		t.Errorf("the first run was changed: %+v", first)
	}
	if alone := Combine(runs[:1]); alone[0].Low != 9 {
		t.Errorf("a single run was changed: %+v", alone)
	}
}
