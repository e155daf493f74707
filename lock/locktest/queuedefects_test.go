package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// lostPush has every nth grant to a waiter arrive only with the heartbeat that
// repairs a lost push.
func lostPush(n int64) func() broken {
	var grants atomic.Int64
	return func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if err == nil && g.Queued && grants.Add(1)%n == 0 {
				time.Sleep(600 * time.Millisecond)
			}
			return g, err
		}}
	}
}

// queueDefects are mistakes that a queue at a backend invites.
var queueDefects = []defect{
	{"L9", "never pushes a grant", false, lostPush(1)},
	{"L9", "loses one push in 20", false, lostPush(20)},
	{"L9", "loses one push in 200", false, lostPush(200)},
	{"L9", "never pushes a slot", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if err == nil && g.Queued && r.Slots > 1 {
				time.Sleep(600 * time.Millisecond)
			}
			return g, err
		}}
	}},
	{"L2", "keeps no record of fences", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if err == nil {
				g.Fence = uint64(time.Now().UnixMicro())
			}
			return g, err
		}}
	}},
	{"L7", "fails all its waits when the data of one key is of another kind", true, func() broken { return failingAll(notALock) }},
	{"L24", "fails all its waits when the data of one key has another version", true, func() broken { return failingAll("format 9") }},
	{"L8", "lets a dead waiter keep the key for 20 s", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if err == nil && g.Queued || ctx.Err() == nil {
				return g, err
			}
			go func() { // its place is served after its death
				r.Token, r.Wait = r.Token+"-dead", 30*time.Minute
				g, err := d.Acquire(context.WithoutCancel(ctx), r)
				if err == nil {
					time.Sleep(20 * time.Second)
					_ = d.Release(context.WithoutCancel(ctx), g)
				}
			}()
			return g, err
		}}
	}},
	{"L8", "shows a dead waiter for 20 s", false, func() broken {
		var mu sync.Mutex
		dead := make(map[string]time.Time) // keys whose last waiter died then
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if ctx.Err() != nil {
				mu.Lock()
				defer mu.Unlock()
				dead[r.Key] = time.Now()
			}
			return g, err
		}, inspect: func(d driver.Driver, ctx context.Context, key string) (driver.State, error) {
			s, err := d.Inspect(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if at, ok := dead[key]; ok && time.Since(at) < 20*time.Second {
				s.Waiters = append(s.Waiters, driver.Holder{Label: "dead"})
			}
			return s, err
		}}
	}},
	{"L21", "asks again for a second when it is refused", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (g driver.Grant, err error) {
			for end := time.Now().Add(driver.CallTimeout); ; time.Sleep(driver.CallTimeout / 20) {
				g, err = d.Acquire(ctx, r)
				if !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil || time.Now().After(end) {
					return g, err
				}
			}
		}}
	}},
	{"L21", "takes a refused command for a busy key", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if lacksPermission(err) {
				err = &driver.NotAcquiredError{Key: r.Key}
			}
			return g, err
		}}
	}},
	{"L21", "waits until a refused command is allowed", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (g driver.Grant, err error) {
			for start := time.Now(); ; time.Sleep(driver.CallTimeout) {
				g, err = d.Acquire(ctx, r)
				if !lacksPermission(err) || time.Since(start) > r.Wait {
					return g, err
				}
			}
		}}
	}},
	{"L21", "does not return the cause of a refused command", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if lacksPermission(err) {
				err = fmt.Errorf("%w: no answer", driver.ErrUnavailable)
			}
			return g, err
		}}
	}},
	{"L24", "does not name the versions", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if errors.Is(err, driver.ErrUnavailable) {
				err = driver.ErrUnavailable
			}
			return g, err
		}}
	}},
	{"L24", "refuses a backend of the next version", true, func() func() broken {
		next := new(atomic.Bool) // of all processes
		return func() broken {
			return broken{rejoin: func(driver.Driver) {
				next.Store(true)
			}, acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
				if next.Load() {
					return driver.Grant{}, fmt.Errorf("%w: the backend has version 4, this program version 3", driver.ErrUnavailable)
				}
				return d.Acquire(ctx, r)
			}}
		}
	}()},
	{"L24", "takes data of another version for a busy key", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if errors.Is(err, driver.ErrUnavailable) {
				err = &driver.NotAcquiredError{Key: r.Key}
			}
			return g, err
		}}
	}},
	{"L7", "puts the first waiter at the end of the queue when it is asked for again", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			s, _ := d.Inspect(ctx, r.Key)
			if len(s.Holders) == 0 || len(s.Waiters) > 0 || r.Wait >= 0 {
				return d.Acquire(ctx, r)
			}
			again := r
			again.Wait = time.Second
			g, err := d.Acquire(ctx, again)
			if errors.Is(err, driver.ErrNotAcquired) && ctx.Err() == nil {
				return d.Acquire(ctx, r)
			}
			return g, err
		}}
	}},
	{"L7", "forgets waiters after 10 s", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if r.Wait == 0 {
				return d.Acquire(ctx, r)
			}
			bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			g, err := d.Acquire(bounded, r)
			if err != nil && bounded.Err() != nil && ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-time.After(30 * time.Minute):
				}
				return driver.Grant{}, &driver.NotAcquiredError{Key: r.Key, Err: ctx.Err()}
			}
			return g, err
		}}
	}},
	{"L7", "swaps every 50th waiter with the next one", false, func() broken {
		var waiters atomic.Int64
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			s, _ := d.Inspect(ctx, r.Key)
			if r.Wait == 0 || len(s.Holders) == 0 || waiters.Add(1)%50 != 0 {
				return d.Acquire(ctx, r)
			}
			// It is shown in its place, and served after the next one.
			again := r
			again.Wait = 30 * time.Minute
			g, err := d.Acquire(ctx, again)
			if err != nil || !g.Queued {
				return g, err
			}
			if s, _ = d.Inspect(ctx, r.Key); len(s.Waiters) == 0 {
				return g, err
			}
			_ = d.Release(ctx, g)
			again.Token += "x"
			g, err = d.Acquire(ctx, again)
			g.Token = again.Token
			return g, err
		}}
	}},
	{"L12", "never shortens a grant", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			grants = slices.Clone(grants)
			for i := range grants {
				s, _ := d.Inspect(ctx, grants[i].Key)
				for _, h := range s.Holders {
					grants[i].NoRenew = grants[i].NoRenew || h.Left > grants[i].TTL
				}
			}
			return d.Renew(ctx, grants)
		}}
	}},
	{"L12", "takes late copies of renewals for new ones", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			grants = slices.Clone(grants)
			for i := range grants {
				grants[i].Rev = 0
			}
			return d.Renew(ctx, grants)
		}}
	}},
	{"L12", "prolongs what is not renewed", false, func() broken {
		return broken{renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			grants = slices.Clone(grants)
			for i := range grants {
				grants[i].NoRenew = false
			}
			return d.Renew(ctx, grants)
		}}
	}},
	{"L20", "waits twice as long", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			if r.Wait > 0 {
				r.Wait *= 2
			}
			return d.Acquire(ctx, r)
		}}
	}},
	{"L21", "reports a busy key without its holders", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if errors.Is(err, driver.ErrNotAcquired) {
				err = &driver.NotAcquiredError{Key: r.Key, Err: ctx.Err()}
			}
			return g, err
		}}
	}},
	{"L21", "is busy when it is full", true, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if errors.Is(err, driver.ErrUnavailable) {
				err = &driver.NotAcquiredError{Key: r.Key}
			}
			return g, err
		}}
	}},
	{"L23", "shows waiters in reverse", false, func() broken {
		return broken{inspect: func(d driver.Driver, ctx context.Context, key string) (driver.State, error) {
			s, err := d.Inspect(ctx, key)
			slices.Reverse(s.Waiters)
			return s, err
		}}
	}},
	{"L23", "loses a holder with an odd label", false, func() broken {
		return broken{inspect: func(d driver.Driver, ctx context.Context, key string) (driver.State, error) {
			s, err := d.Inspect(ctx, key)
			for i := range s.Holders {
				if strings.Contains(s.Holders[i].Label, `"`) {
					s.Holders[i].Holder = driver.Holder{}
				}
			}
			return s, err
		}}
	}},
	{"L23", "renews what it lists", false, func() broken {
		var seen sync.Map
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if err == nil {
				seen.Store(r.Key, g)
			}
			return g, err
		}, inspect: func(d driver.Driver, ctx context.Context, key string) (driver.State, error) {
			if g, ok := seen.Load(key); ok {
				d.Renew(ctx, []driver.Grant{g.(driver.Grant)})
			}
			return d.Inspect(ctx, key)
		}}
	}},
	{"L23", "lists under the mutex that its renewals need", true, func() broken {
		busy := make(chan struct{}, 1) // a mutex that fake time sees
		return broken{list: func(d driver.Driver, ctx context.Context, prefix string) ([]driver.State, error) {
			busy <- struct{}{}
			defer func() { <-busy }()
			time.Sleep(4 * time.Second)
			return d.List(ctx, prefix)
		}, renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			busy <- struct{}{}
			defer func() { <-busy }()
			return d.Renew(ctx, grants)
		}}
	}},
	{"L23", "renews and lists in one goroutine", true, func() broken {
		turn := make(chan struct{}, 1)
		return broken{list: func(d driver.Driver, ctx context.Context, prefix string) ([]driver.State, error) {
			turn <- struct{}{}
			defer func() { <-turn }()
			return d.List(ctx, prefix)
		}, renew: func(d driver.Driver, ctx context.Context, grants []driver.Grant) []driver.Renewal {
			turn <- struct{}{}
			defer func() { <-turn }()
			return d.Renew(ctx, grants)
		}}
	}},
	{"L23", "fails a list for one key that is not a lock", true, func() broken {
		return broken{list: func(d driver.Driver, ctx context.Context, prefix string) ([]driver.State, error) {
			states, err := d.List(ctx, prefix)
			for _, s := range states {
				if s.Skipped != "" {
					return nil, driver.ErrUnavailable
				}
			}
			return states, err
		}}
	}},
	{"L23", "hides what is not a lock", true, func() broken {
		return broken{list: func(d driver.Driver, ctx context.Context, prefix string) ([]driver.State, error) {
			states, err := d.List(ctx, prefix)
			return slices.DeleteFunc(states, func(s driver.State) bool { return s.Skipped != "" }), err
		}}
	}},
	{"L10", "takes any number of tickets", false, func() broken {
		return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			if busy, ok := errors.AsType[*driver.NotAcquiredError](err); ok && busy.Full {
				<-ctx.Done()
				return g, ctx.Err()
			}
			return g, err
		}}
	}},
}

// lacksPermission reports whether the table of a fleet has refused a single call.
func lacksPermission(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no permission to")
}

// failingAll fails every wait of a process when a call of it fails with this text.
func failingAll(text string) broken {
	failed, fail := context.WithCancelCause(context.Background())
	return broken{acquire: func(d driver.Driver, ctx context.Context, r driver.Request) (driver.Grant, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(failed, cancel)()
		g, err := d.Acquire(ctx, r)
		switch {
		case err != nil && strings.Contains(err.Error(), text):
			fail(err)
		case err != nil && failed.Err() != nil:
			err = context.Cause(failed)
		}
		return g, err
	}}
}
