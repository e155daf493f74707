package suite_test

import (
	"math"
	"testing"

	"github.com/megaframework/mega/internal/suite"
)

func TestJainIsOneForEqualSharesAndFallsToOneNth(t *testing.T) {
	for want, shares := range map[float64][]int{1: {3, 3, 3}, 0.25: {8, 0, 0, 0}} {
		if got := suite.Jain(shares); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: got %v, want %v", shares, got, want)
		}
	}
}
