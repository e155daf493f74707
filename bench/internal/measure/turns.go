package measure

import (
	"fmt"
	"time"
)

// Turn returns the n contestants' numbers in an order that begins with another
// one each time, so that no contestant always runs directly after the same
// other one.
func Turn(n, round int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round) % n
	}
	return order
}

// Alternately returns the median time of each operation in each repetition.
func Alternately(s Scale, ops map[string]func() error, names ...string) (Samples, error) {
	return InTurn(s, s.Scaled(1000), ops, names...)
}

// InTurn is Alternately with another number of rounds in each repetition.
func InTurn(s Scale, rounds int, ops map[string]func() error, names ...string) (Samples, error) {
	times := Samples{}
	for range s.Reps(7) {
		took := make([][]time.Duration, len(names))
		for round := range rounds {
			for _, i := range Turn(len(names), round) {
				start := time.Now()
				if err := ops[names[i]](); err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				took[i] = append(took[i], time.Since(start))
			}
		}
		for i, name := range names {
			times.Add(name, Micros(Median(took[i])))
		}
	}
	return times, nil
}
