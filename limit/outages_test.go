package limit_test

import (
	"testing"
	"time"

	"github.com/megaframework/mega/limit"
)

// An outage that begins while the end of the last one is reported does not change
// its report. The race detector judges.
func TestAnOutageThatFollowsAtOnce(t *testing.T) {
	r := newRemote()
	again := make(chan struct{})
	l := open(t, r, limit.Config{Observer: observe(func(e limit.Event) {
		if _, ok := e.(limit.Available); ok {
			<-again
		}
	})})
	m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(1)}, Outage: limit.Open}
	for range 2 {
		r.set(refuse)
		if a, err := l.Allow(t.Context(), "k", m); err != nil || !a.Degraded {
			t.Fatalf("%+v, %v", a, err)
		}
		until(t, func() bool { return l.Unavailable() != nil })
		r.set(nil)
		until(t, func() bool { return l.Unavailable() == nil })
	}
	close(again)
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(50 * time.Microsecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("it does not happen")
		}
	}
}
