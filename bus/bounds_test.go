package bus_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
)

func TestADrainInAHandlerDoesNotHoldUpTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := make(chan struct{})
		var inner error
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error {
			<-begun
			inner = b.Drain(ctx)
			return nil
		})
		publish(t, b, "a", "")
		synctest.Wait()
		start := time.Now()
		var outer error
		var first sync.WaitGroup
		first.Go(func() { outer = b.Drain(ctx) })
		synctest.Wait()
		close(begun)
		first.Wait()
		<-s.Done()
		if outer != nil || inner != nil || time.Since(start) != 0 {
			t.Errorf("drained after %v: %v, within the handler %v", time.Since(start), outer, inner)
		}
	})
}

func TestSubDrainIsBoundedWhereTheBackendIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return nil })
		r.set("End", nil, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("drained after %v: %v", time.Since(start), err)
		}
		r.set("End", nil, false)
		synctest.Wait()
		if r.ends != 2 {
			t.Errorf("the backend was asked %d times to end the registration, want 2", r.ends)
		}
	})
}

func TestSubDrainInAHandlerIsBoundedWhereTheBackendIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		var err error
		var s *bus.Sub
		s = subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err = s.Drain(ctx)
			return nil
		})
		r.set("End", nil, true)
		publish(t, b, "a", "")
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-s.Done():
		default:
			t.Error("the subscription has not ended")
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// foreign is a context for which the standard library has to start a goroutine
// per derived context.
type foreign struct {
	context.Context
	done chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

// A goroutine that is left fails the synctest.
func TestASubscriptionThatHasEndedOrIsRefusedLeavesNothingInItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		ctx := foreign{t.Context(), make(chan struct{})}
		s, err := b.Subscribe(ctx, "a", ignore)
		if err != nil {
			t.Fatal(err)
		}
		s.Stop()
		_ = b.Close()
		if _, err := b.Subscribe(ctx, "a", ignore); !errors.Is(err, bus.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// A context that nobody has waited for while the handler ran ends with it, too.
func TestTheContextOfAnEventWithADeadlineEndsWithItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		var kept context.Context
		subscribe(t, b, "a", func(ctx context.Context, _ *bus.Msg) error { kept = ctx; return nil })
		publish(t, b, "a", "", bus.Expires(time.Minute))
		synctest.Wait()
		if !errors.Is(kept.Err(), context.Canceled) {
			t.Errorf("the context has ended with %v", kept.Err())
		}
		select {
		case <-kept.Done():
		default:
			t.Error("the context is not done")
		}
	})
}

// A nil pointer in an error is a frequent mistake of Go programs.
func TestAResponderThatReturnsANilPointer(t *testing.T) {
	var none *bus.RemoteError
	b := newBus(t, bus.Config{})
	respond(t, b, "a", func(context.Context, *bus.Msg) ([]byte, error) { return nil, none })
	respond(t, b, "b", func(context.Context, *bus.Msg) ([]byte, error) { return nil, textPanics{} })
	for _, subject := range []string{"a", "b"} {
		_, err := b.Request(t.Context(), subject, nil)
		if remote, ok := errors.AsType[*bus.RemoteError](err); !ok || remote.Code() != "panic" {
			t.Errorf("%s: got %v", subject, err)
		}
	}
	if err := b.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if st := b.Stats().Total; st.Failed != 2 || st.Panicked != 2 {
		t.Errorf("got %+v", st)
	}
}

type textPanics struct{}

func (textPanics) Error() string { panic("no text") }

// A loss that was reported while OrderBy computed the key of the only message
// is not forgotten when the next message finds the buffer full.
func TestALossBehindAMessageWhoseKeyIsComputed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		gate := make(chan struct{})
		l := newGatedLog()
		close(l.gate)
		subscribe(t, b, "a", l.handler, bus.Buffer(1, 1<<20), bus.OnFull(bus.DropOldest), bus.OrderBy(func(m *bus.Msg) string {
			<-gate
			return string(m.Data)
		}))
		publish(t, b, "a", "1")
		synctest.Wait()
		r.sinks[0].Gap(-1)
		publish(t, b, "a", "2")
		close(gate)
		synctest.Wait()
		l.want(t, "1", "2 after -1")
	})
}

// Goexit is no panic: a test that fails in a handler calls it.
func TestCrashOnPanicAndTheEndOfAGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		ends := func(context.Context, *bus.Msg) ([]byte, error) { runtime.Goexit(); return nil, nil }
		respond(t, b, "a", ends, bus.CrashOnPanic())
		start := time.Now()
		_, err := b.Request(t.Context(), "a", nil)
		if remote, ok := errors.AsType[*bus.RemoteError](err); !ok || remote.Code() != "panic" || time.Since(start) != 0 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		repaired := 0
		s := subscribe(t, b, "b", func(context.Context, *bus.Msg) error { return nil }, bus.CrashOnPanic(), bus.OnGap(func(context.Context, int) error {
			repaired++
			runtime.Goexit()
			return nil
		}))
		r.sinks[1].Gap(1)
		publish(t, b, "b", "")
		synctest.Wait()
		if repaired != 1 || s.Stats().Handled != 1 {
			t.Errorf("%d repairs, %+v", repaired, s.Stats())
		}
	})
}

func TestARequestThatIsCancelledBeforeItIsSentHasTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		r.set("Request", nil, true)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the client has gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if _, err := b.Request(ctx, "a", nil); !errors.Is(err, context.Canceled) || !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
	})
}

func TestARequestThatFindsNoRoomIsOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r := newRemoteBus(t, bus.Config{})
		r.set("Request", driver.ErrOverloaded, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Request(ctx, "a", nil); !errors.Is(err, bus.ErrOverloaded) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestARequestThatIsBegunWhileTheBusCloses(t *testing.T) {
	var b *bus.Bus
	inject := func(context.Context, bus.Headers) { _ = b.Close() }
	for name, request := range map[string]func() error{
		"Request":     func() error { _, err := b.Request(t.Context(), "a", nil); return err },
		"RequestMany": func() error { _, err := gather(b, t.Context(), "a"); return err },
	} {
		b = newBus(t, bus.Config{Inject: inject})
		if err := request(); !errors.Is(err, bus.ErrClosed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// exiting is an observer that ends the goroutine which calls it.
type exiting struct{ calls chan bus.Event }

func (o exiting) Observe(e bus.Event) {
	o.calls <- e
	runtime.Goexit()
}

func TestAnObserverThatEndsItsGoroutineGetsTheNextEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := exiting{make(chan bus.Event, 10)}
		b := newBus(t, bus.Config{Observer: o})
		subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return errors.New("failed") })
		publishAll(t, b, "a", 1, 3)
		synctest.Wait()
		publishAll(t, b, "a", 4, 4)
		synctest.Wait()
		if len(o.calls) != 4 {
			t.Errorf("it got %d events, want 4", len(o.calls))
		}
	})
}
