package measure

import (
	"slices"
	"time"
)

// Quantile returns the value below which the share q of the values lies.
func Quantile[T float64 | time.Duration](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Median returns the value in the middle.
func Median[T float64 | time.Duration](values []T) T { return Quantile(values, 0.5) }

// Jain is Jain's fairness index of what each contestant got: 1 if all got the
// same, 1/n if one got everything.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Micros returns a duration in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Millis returns a duration in milliseconds.
func Millis(d time.Duration) float64 { return Micros(d) / 1000 }
