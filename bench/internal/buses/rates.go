package buses

import (
	"fmt"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
)

// contestant does something n times.
type contestant struct {
	name string
	do   measure.Batch
}

// publishRep adds the publish rate of each contestant: the size of a batch divided
// by the median duration of its batches.
func publishRep(l *lab.Lab, who []contestant, rates measure.Samples) error {
	const size = 10_000
	slices := make([][]time.Duration, len(who))
	for round := range l.Scaled(20) {
		for _, i := range measure.Turn(len(who), round) {
			start := time.Now()
			if err := who[i].do(size); err != nil {
				return fmt.Errorf("%s: %w", who[i].name, err)
			}
			slices[i] = append(slices[i], time.Since(start))
		}
	}
	for i, c := range who {
		rates.Add(c.name, size/measure.Median(slices[i]).Seconds())
	}
	return nil
}

func requestRep(l *lab.Lab, who []contestant, asked measure.Samples) error {
	took := make([][]time.Duration, len(who))
	for round := range l.Scaled(1000) {
		for _, i := range measure.Turn(len(who), round) {
			start := time.Now()
			if err := who[i].do(1); err != nil {
				return fmt.Errorf("%s: %w", who[i].name, err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	for i, c := range who {
		asked.Add(c.name, measure.Micros(measure.Median(took[i])))
	}
	return nil
}
