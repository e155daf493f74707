package locktest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// Each defect is found by a case of its rule.
func TestBrokenDriversAreCaught(t *testing.T) {
	for _, defect := range slices.Concat(defects, queueDefects, slotDefects, runDefects) {
		t.Run(defect.rule+"/"+defect.is, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := new(fleet)
				wrap := func(d driver.Driver) driver.Driver {
					b := defect.broken()
					b.Driver = d
					return &b
				}
				if defect.client {
					f.breakClient = wrap
				} else {
					f.breakTable = wrap
				}
				err := locktest.Check(t.Context(), f.harness(), defect.rule)
				if err == nil {
					t.Fatalf("a driver that %s was not caught", defect.is)
				}
				if !strings.Contains(err.Error(), defect.rule+"/") {
					t.Errorf("the finding does not name %s: %v", defect.rule, err)
				}
				t.Log(names(err))
				time.Sleep(time.Hour) // what the defect has left behind ends
			})
		})
	}
}

// impatient is a driver that takes the pause of a wait for its end.
type impatient struct{ *askingWire }

func (d impatient) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	g, wait, err := d.askingWire.Ask(ctx, r)
	if wait == nil {
		return g, nil, err
	}
	return g, func(ctx context.Context) (driver.Grant, error) {
		ended, end := context.WithCancel(context.WithoutCancel(ctx))
		defer context.AfterFunc(ctx, end)()
		return wait(ended)
	}, err
}

func TestDriverThatLosesAPausedRequestIsCaught(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{asks: true, breakClient: func(d driver.Driver) driver.Driver { return impatient{d.(*askingWire)} }}
		err := locktest.Check(t.Context(), f.harness(), "L10/a waiter that gives up leaves its place to the next one of its process")
		if err == nil {
			t.Error("it was not caught")
		}
	})
}

// names returns the names of the cases that failed.
func names(err error) string {
	var all []string
	for line := range strings.Lines(err.Error()) {
		if strings.ContainsAny(line[:1], "LPEO") {
			all = append(all, strings.SplitN(line, ":", 2)[0])
		}
	}
	return strings.Join(all, "; ")
}

// A driver without defects passes, so that what is caught is the defect.
func TestSoundDriverPasses(t *testing.T) {
	for _, rule := range locktest.Rules() {
		if rule.ID == "E5" {
			continue // boot runs OnPrimary functions
		}
		t.Run(rule.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := locktest.Check(t.Context(), new(fleet).harness(), rule.ID); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestCheckRefusesAnUnknownName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := locktest.Check(t.Context(), new(fleet).harness(), "L99"); err == nil {
			t.Error("a name that no case has was taken")
		}
	})
}

// broken is a driver with one thing wrong with it. What is nil is as it should
// be.
type broken struct {
	driver.Driver
	acquire func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error)
	renew   func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal
	release func(d driver.Driver, ctx context.Context, g driver.Grant) error
	force   func(d driver.Driver, ctx context.Context, key string, f driver.Force) (int, error)
	heal    func(d driver.Driver, ctx context.Context, key string, slot int, reason string, by driver.Holder) error
	inspect func(d driver.Driver, ctx context.Context, key string) (driver.State, error)
	list    func(d driver.Driver, ctx context.Context, prefix string) ([]driver.State, error)
	close   func(d driver.Driver, ctx context.Context) error
	rejoin  func(d driver.Driver) // called when the process connects to the next backend

	beginRun func(d driver.Runner, ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error)
	endRun   func(d driver.Runner, ctx context.Context, g driver.Grant, r driver.Run) error
}

func (b *broken) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if b.acquire == nil {
		return b.Driver.Acquire(ctx, r)
	}
	return b.acquire(b.Driver, ctx, r)
}

func (b *broken) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if b.renew == nil {
		return b.Driver.Renew(ctx, grants)
	}
	return b.renew(b.Driver, ctx, grants)
}

func (b *broken) Release(ctx context.Context, g driver.Grant) error {
	if b.release == nil {
		return b.Driver.Release(ctx, g)
	}
	return b.release(b.Driver, ctx, g)
}

func (b *broken) ForceRelease(ctx context.Context, key string, f driver.Force) (int, error) {
	if b.force == nil {
		return b.Driver.ForceRelease(ctx, key, f)
	}
	return b.force(b.Driver, ctx, key, f)
}

func (b *broken) Heal(ctx context.Context, key string, slot int, reason string, by driver.Holder) error {
	if b.heal == nil {
		return b.Driver.(driver.PoolDriver).Heal(ctx, key, slot, reason, by)
	}
	return b.heal(b.Driver, ctx, key, slot, reason, by)
}

func (b *broken) Inspect(ctx context.Context, key string) (driver.State, error) {
	if b.inspect == nil {
		return b.Driver.Inspect(ctx, key)
	}
	return b.inspect(b.Driver, ctx, key)
}

func (b *broken) List(ctx context.Context, prefix string) ([]driver.State, error) {
	if b.list == nil {
		return b.Driver.List(ctx, prefix)
	}
	return b.list(b.Driver, ctx, prefix)
}

func (b *broken) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	if b.beginRun == nil {
		return b.Driver.(driver.Runner).BeginRun(ctx, g, every, spend)
	}
	return b.beginRun(b.Driver.(driver.Runner), ctx, g, every, spend)
}

func (b *broken) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	if b.endRun == nil {
		return b.Driver.(driver.Runner).EndRun(ctx, g, r)
	}
	return b.endRun(b.Driver.(driver.Runner), ctx, g, r)
}

func (b *broken) Close(ctx context.Context) error {
	if b.close == nil {
		return b.Driver.Close(ctx)
	}
	return b.close(b.Driver, ctx)
}

// poll tries again and again instead of waiting in a queue.
func poll(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
	wait := r.Wait
	r.Wait = 0
	for start := time.Now(); ; {
		g, err := d.Acquire(ctx, r)
		if !errors.Is(err, driver.ErrNotAcquired) || ctx.Err() != nil || wait >= 0 && time.Since(start) >= wait {
			return g, err
		}
		select {
		case <-time.After(time.Duration(1+rand.IntN(50)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// stack lets only the newest waiter of a key into the queue.
type stack struct {
	mu  sync.Mutex // guards top
	top map[string][]string
}

func (s *stack) acquire(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Wait == 0 {
		return d.Acquire(ctx, r)
	}
	s.mu.Lock()
	if s.top == nil {
		s.top = make(map[string][]string)
	}
	s.top[r.Key] = append(s.top[r.Key], r.Token)
	s.mu.Unlock()
	defer s.pop(r)
	wait := r.Wait
	r.Wait = time.Millisecond
	for start := time.Now(); ; {
		s.mu.Lock()
		stack := s.top[r.Key]
		first := stack[len(stack)-1] == r.Token
		s.mu.Unlock()
		if first {
			g, err := d.Acquire(ctx, r)
			if !errors.Is(err, driver.ErrNotAcquired) || ctx.Err() != nil {
				return g, err
			}
		}
		if wait > 0 && time.Since(start) > wait || ctx.Err() != nil {
			return driver.Grant{}, &driver.NotAcquiredError{Key: r.Key, Err: ctx.Err()}
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *stack) pop(r driver.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, token := range s.top[r.Key] {
		if token == r.Token {
			s.top[r.Key] = append(s.top[r.Key][:i:i], s.top[r.Key][i+1:]...)
			return
		}
	}
}
