package outage_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/outage"
)

// backend fails its first probes, and records what it is told. The test reads
// the record when the group has ended.
type backend struct {
	failures int
	events   []string
	ready    chan struct{} // the probes wait until it is closed
}

var errGone = errors.New("gone")

func (b *backend) Probe(context.Context) error {
	<-b.ready
	b.add("probe")
	if b.failures--; b.failures >= 0 {
		return errGone
	}
	return nil
}

func (b *backend) Lost(err error)                { b.add("lost: " + err.Error()) }
func (b *backend) Returned(time.Duration) func() { return func() { b.add("returned") } }

func (b *backend) add(event string) { b.events = append(b.events, event) }

func TestOutageIsReportedOnceEach(t *testing.T) {
	for _, test := range []struct {
		failures int
		want     []string
	}{
		{0, []string{"probe"}}, // an error of one key
		{3, []string{"probe", "lost: gone", "probe", "probe", "probe", "returned"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var (
				g group.Group
				w outage.Watch
				b = backend{failures: test.failures, ready: make(chan struct{})}
			)
			g.Init()
			w.Init(&g, &b)
			w.Begin()
			w.Begin() // one watch is running
			close(b.ready)
			synctest.Wait()
			if lost := w.Cause() != nil; lost != (test.failures > 0) {
				t.Errorf("%d failures: the backend is lost: %v", test.failures, lost)
			}
			time.Sleep(time.Minute)
			g.Close(-1)
			if !slices.Equal(b.events, test.want) || w.Cause() != nil {
				t.Errorf("got %q and %v, want %q", b.events, w.Cause(), test.want)
			}
		})
	}
}

func TestClosedGroupEndsTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			g group.Group
			w outage.Watch
			b = backend{failures: 1 << 30, ready: make(chan struct{})}
		)
		close(b.ready)
		g.Init()
		w.Init(&g, &b)
		w.Begin()
		time.Sleep(10 * time.Second)
		if !g.Close(-1) || w.Cause() != nil || b.events[len(b.events)-1] != "returned" {
			t.Errorf("the watch has not ended: %v, %q", w.Cause(), b.events)
		}
	})
}
