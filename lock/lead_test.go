package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

func TestOneProcessLeadsUntilItsFunctionReturnsNil(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		type term struct {
			leader string
			fence  uint64
		}
		terms := make(chan term)
		resign := make(chan error)
		lead := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				lease, _ := lock.LeaseFrom(ctx)
				terms <- term{name, lease.Fence()}
				select {
				case err := <-resign:
					return err
				case <-ctx.Done():
					return nil
				}
			}
		}
		ended := make(chan error, 2)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- a.Lead(t.Context(), "reaper", lead("a")) }()
		first := <-terms
		go func() { ended <- b.Lead(ctx, "reaper", lead("b")) }()
		time.Sleep(time.Minute)
		synctest.Wait()

		// A loss: the campaign goes on, in one of the two.
		if _, err := a.ForceRelease(t.Context(), "reaper", "test"); err != nil {
			t.Fatal(err)
		}
		second := <-terms
		if second.fence <= first.fence {
			t.Errorf("the term %v is not after %v", second, first)
		}
		time.Sleep(time.Second) // the lost term has ended
		// An error: the other process leads, at once.
		failed := time.Now()
		resign <- errors.New("failed")
		third := <-terms
		if third.leader == second.leader || time.Since(failed) > 100*time.Millisecond {
			t.Errorf("%v leads %v after the failure of %v", third, time.Since(failed), second)
		}
		if third.leader == "b" { // lead a again, so that the end of b's context is the end of a follower
			resign <- errors.New("failed")
			third = <-terms
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the follower returned %v", err)
		}
		resign <- nil
		if err := <-ended; err != nil {
			t.Errorf("the leader returned %v", err)
		}
		release(t, acquire(t, b, "reaper", lock.Wait(0)))
	})
}

func TestTheEndOfItsContextHandsLeadershipOver(t *testing.T) {
	onFleet(t, func(t *testing.T, a, b *lock.Locker) {
		leads := make(chan string)
		wait := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				leads <- name
				<-ctx.Done()
				return ctx.Err()
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- a.Lead(ctx, "reaper", wait("a")) }()
		<-leads
		next, stopNext := context.WithCancel(t.Context())
		go func() { ended <- b.Lead(next, "reaper", wait("b")) }()
		synctest.Wait()
		at := time.Now()
		stop()
		if leader := <-leads; leader != "b" || time.Since(at) > 0 {
			t.Errorf("%s leads %v later", leader, time.Since(at))
		}
		stopNext()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Lead returned %v", err)
			}
		}
	})
}

func TestTheFailureOfALeaderAtTheEndOfItsContextIsReturned(t *testing.T) {
	onFleet(t, func(t *testing.T, a, _ *lock.Locker) {
		ctx, stop := context.WithCancelCause(t.Context())
		cause, unsaved := errors.New("the program stops"), errors.New("the work is not saved")
		err := a.Lead(ctx, "reaper", func(context.Context) error {
			stop(cause)
			return unsaved
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || !errors.Is(err, unsaved) {
			t.Errorf("Lead returned %v", err)
		}
	})
}

// A function that has done its work is no failure, also if its context ends meanwhile (E2).
func TestALeaderThatHasFinishedReturnsNilAfterTheEndOfItsContext(t *testing.T) {
	l := process(t, memory.NewLock(), lock.Config{})
	ctx, stop := context.WithCancel(t.Context())
	err := l.Lead(ctx, "reaper", func(context.Context) error { stop(); return nil })
	if err != nil {
		t.Errorf("Lead returned %v", err)
	}
}

func TestFailuresOfALeaderAreRetriedMoreAndMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := process(t, memory.NewLock(), lock.Config{Observer: &seen})
		terms := 0
		err := l.Lead(t.Context(), "reaper", func(context.Context) error {
			switch terms++; terms {
			case 12:
				time.Sleep(time.Minute)
			case 14:
				return nil
			}
			return errors.New("failed")
		})
		if err != nil {
			t.Fatal(err)
		}
		var pauses []time.Duration
		for _, e := range eventsOf[lock.Retrying](&seen) {
			pauses = append(pauses, e.Pause)
		}
		want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 1, 2}
		if len(pauses) != len(want) {
			t.Fatalf("pauses %v", pauses)
		}
		for i, p := range pauses {
			if w := want[i] * time.Second; p < w*4/5 || p > w*6/5 {
				t.Errorf("pause %d is %v, want about %v", i+1, p, w)
			}
		}
	})
}

// The wait of a follower is no term.
func TestALossCausesNoPauseOfACampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := process(t, memory.NewLock(), lock.Config{Observer: &seen})
		start, terms := time.Now(), 0
		err := l.Lead(t.Context(), "k", func(ctx context.Context) error {
			if terms++; terms == 3 {
				return nil
			}
			if _, err := l.ForceRelease(t.Context(), "k", "test"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(start); err != nil || took > time.Millisecond || len(eventsOf[lock.Retrying](&seen)) != 0 {
			t.Errorf("got %v after %v, retries %+v", err, took, eventsOf[lock.Retrying](&seen))
		}
	})
}

func TestALongTermThatIsLostStartsThePausesOfALeaderAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := process(t, memory.NewLock(), lock.Config{Observer: &seen})
		terms := 0
		if err := l.Lead(t.Context(), "reaper", func(ctx context.Context) error {
			switch terms++; terms {
			case 4:
				time.Sleep(2 * time.Minute)
				if _, err := l.ForceRelease(ctx, "reaper", "test"); err != nil {
					t.Error(err)
				}
			case 6:
				return nil
			}
			return errors.New("failed")
		}); err != nil {
			t.Fatal(err)
		}
		var pauses []time.Duration
		for _, e := range eventsOf[lock.Retrying](&seen) {
			pauses = append(pauses, e.Pause.Round(time.Second))
		}
		if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, time.Second}; len(pauses) != 4 || pauses[3] != time.Second {
			t.Errorf("pauses %v, want about %v", pauses, want)
		}
	})
}

func TestALongWaitDoesNotStartThePausesOfALeaderAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		l := process(t, memory.NewLock(), lock.Config{Observer: &seen})
		terms := 0
		if err := l.Lead(t.Context(), "reaper", func(context.Context) error {
			switch terms++; terms {
			case 2: // another holder follows, for longer than a term that starts them anew
				go func() {
					lease := acquire(t, l, "reaper")
					time.Sleep(2 * time.Minute)
					release(t, lease)
				}()
				time.Sleep(time.Second)
			case 4:
				return nil
			}
			return errors.New("failed")
		}); err != nil {
			t.Fatal(err)
		}
		var pauses []time.Duration
		for _, e := range eventsOf[lock.Retrying](&seen) {
			pauses = append(pauses, e.Pause.Round(time.Second))
		}
		if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}; len(pauses) != 3 || pauses[2] < 3*time.Second {
			t.Errorf("pauses %v, want about %v", pauses, want)
		}
	})
}

func TestCloseEndsThePausesOfACampaign(t *testing.T) {
	for name, campaign := range map[string]func(ctx context.Context, l *lock.Locker, fn func(context.Context) error) error{
		"Lead": func(ctx context.Context, l *lock.Locker, fn func(context.Context) error) error {
			return l.Lead(ctx, "k", fn)
		},
		"Every": func(ctx context.Context, l *lock.Locker, fn func(context.Context) error) error {
			return l.Every(ctx, "k", 24*time.Hour, fn)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := raw(t, memory.NewLock(), lock.Config{})
			ended := make(chan error)
			go func() { ended <- campaign(t.Context(), l, func(context.Context) error { return errors.New("failed") }) }()
			synctest.Wait()
			closed := time.Now()
			if err := l.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, lock.ErrClosed) || time.Since(closed) > 0 {
				t.Errorf("%s: got %v, %v after Close", name, err, time.Since(closed))
			}
		})
	}
}

func TestLeadReturnsWhatNoRetryCanMend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := process(t, memory.NewLock(), lock.Config{})
		nothing := func(context.Context) error { return nil }
		if err := l.Lead(t.Context(), "reaper", nil); !errors.Is(err, lock.ErrInvalid) {
			t.Error(err)
		}
		if err := l.Lead(t.Context(), "reaper", nothing, lock.Wait(time.Second)); !errors.Is(err, lock.ErrInvalid) {
			t.Error(err)
		}
		for _, slots := range []lock.Option{lock.Slots(2), lock.Slots(1), lock.FixedSlots(1)} {
			if err := l.Lead(t.Context(), "reaper", nothing, slots); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("a slot of a pool: %v", err)
			}
		}
		if err := l.Every(t.Context(), "job", -time.Second, nothing); !errors.Is(err, lock.ErrInvalid) {
			t.Error(err)
		}
		if err := l.Lead(t.Context(), "reaper", func(ctx context.Context) error {
			if err := l.Lead(ctx, "reaper", nothing); !errors.Is(err, lock.ErrDeadlock) {
				t.Errorf("%v; want ErrDeadlock", err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}
