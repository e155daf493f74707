package buses

import (
	"testing"

	"github.com/megaframework/mega/bench/internal/measure"
)

func TestEveryFlowHandlesItsEvents(t *testing.T) {
	for _, subscriptions := range []int{1, 3} {
		flows, err := openFlows(t.Context(), subscriptions)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{measure.Mega, channel, goChannel} {
			f := flows[name]
			for range 2 {
				if err := f.batch(100); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for i, c := range f.counters {
				if n := c.handled.Load(); n != 200 {
					t.Errorf("%s: subscription %d of %d has handled %d of 200", name, i, subscriptions, n)
				}
			}
			if err := f.close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
