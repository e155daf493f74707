package bus_test

import (
	"context"
	"io/fs"
	"testing"
	"testing/synctest"

	"github.com/megaframework/mega/bus"
)

// A nil pointer in an error is a frequent mistake of Go programs, and its
// methods panic.
func TestAHandlerThatReturnsANilPointer(t *testing.T) {
	var none *fs.PathError
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return none })
		publish(t, b, "a", "")
		publish(t, b, "a", "")
		synctest.Wait()
		if st := s.Stats(); st.Handled != 2 || st.Failed != 2 || st.Panicked != 2 {
			t.Errorf("got %+v", st)
		}
	})
}

// An observer may log the text of every error that it gets.
func TestAnErrorWhoseTextPanicsIsReportedAsAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		b, r := newRemoteBus(t, bus.Config{Observer: observer(func(e bus.Event) {
			switch e := e.(type) {
			case bus.HandlerFailed:
				l.add("handler: " + e.Err.Error())
			case bus.GapFailed:
				l.add("gap: " + e.Err.Error())
			}
		})})
		fails := func(context.Context, int) error { return textPanics{} }
		s := subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error { return fails(ctx, 0) }, bus.OnGap(fails))
		publish(t, b, "a", "")
		synctest.Wait()
		r.sinks[0].Gap(1)
		synctest.Wait()
		l.want(t, "handler: bus: the handler panicked: no text", "gap: bus: the handler panicked: no text")
		if st := s.Stats(); st.Failed != 1 || st.Panicked != 1 {
			t.Errorf("stats are %+v", st)
		}
	})
}
