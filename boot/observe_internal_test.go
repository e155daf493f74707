package boot

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/lock"
)

// The backend does not report that it accepts messages again.
func TestARefusalIsALimitationForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusal
		refused := func(want bool) {
			t.Helper()
			if err := r.check(t.Context()); (err != nil) != want {
				t.Errorf("got %v", err)
			}
		}
		refused(false)
		r.note(bus.PublishRefused{Subject: "a", Err: bus.ErrRefused})
		time.Sleep(refusedTime)
		refused(true)
		r.note(bus.PublishRefused{Subject: "b", Err: bus.ErrRefused})
		time.Sleep(refusedTime)
		refused(true)
		time.Sleep(time.Second)
		refused(false)
	})
}

func BenchmarkLockObserver(b *testing.B) {
	var e lock.Event = lock.Acquired{Key: "order:1"}
	all := lockObserver{&logging.LockEvents{Log: slog.New(slog.DiscardHandler)}, metrics.New(metrics.Build{})}
	b.ReportAllocs()
	for b.Loop() {
		all.Observe(e)
	}
}

func TestPanicOfACheckIsItsError(t *testing.T) {
	p := ops.NewProbes(func(text string) string { return text })
	p.Add(ops.Check{Name: "network", Budget: time.Second, Run: contain(func(context.Context) error { panic("no idea") })})
	p.Begin()
	if is := p.Ready(t.Context(), false); is.Status != "not ready" || !strings.Contains(is.Reasons["network"], "no idea") {
		t.Errorf("got %+v", is)
	}
}
