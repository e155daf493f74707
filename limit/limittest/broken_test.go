package limittest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/limit/limittest"
)

// broken is a driver with a defect: each function that is set replaces a method.
type broken struct {
	driver.Driver
	take     func(d driver.Driver, r driver.Request) (driver.Answer, error)
	withdraw func(d driver.Driver, r driver.Request) error
	settle   func(d driver.Driver, s driver.Settlement) error
	pause    func(d driver.Driver, key string, p driver.Pause) error
	reset    func(d driver.Driver, key string) error
	inspect  func(d driver.Driver, key string, rates []driver.Rate) (driver.State, error)
	list     func(d driver.Driver, prefix string) ([]driver.State, error)
}

func (b *broken) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	if b.take != nil {
		return b.take(b.Driver, r)
	}
	return b.Driver.Take(ctx, r)
}

func (b *broken) Withdraw(ctx context.Context, r driver.Request) error {
	if b.withdraw != nil {
		return b.withdraw(b.Driver, r)
	}
	return b.Driver.Withdraw(ctx, r)
}

func (b *broken) Settle(ctx context.Context, s driver.Settlement) error {
	if b.settle != nil {
		return b.settle(b.Driver, s)
	}
	return b.Driver.Settle(ctx, s)
}

func (b *broken) Pause(ctx context.Context, key string, p driver.Pause) error {
	if b.pause != nil {
		return b.pause(b.Driver, key, p)
	}
	return b.Driver.Pause(ctx, key, p)
}

func (b *broken) Reset(ctx context.Context, key string) error {
	if b.reset != nil {
		return b.reset(b.Driver, key)
	}
	return b.Driver.Reset(ctx, key)
}

func (b *broken) Inspect(ctx context.Context, key string, rates []driver.Rate) (driver.State, error) {
	if b.inspect != nil {
		return b.inspect(b.Driver, key, rates)
	}
	return b.Driver.Inspect(ctx, key, rates)
}

func (b *broken) List(ctx context.Context, prefix string) ([]driver.State, error) {
	if b.list != nil {
		return b.list(b.Driver, prefix)
	}
	return b.Driver.List(ctx, prefix)
}

var ctx = context.Background()

// slower returns r with rates whose Per is changed.
func slower(r driver.Request, change func(driver.Rate) driver.Rate) driver.Request {
	rates := make([]driver.Rate, len(r.Rates))
	for i, rate := range r.Rates {
		rates[i] = change(rate)
	}
	r.Rates = rates
	return r
}

// defects are broken drivers, each with the rule whose cases find it.
var defects = []struct {
	rule, is string
	wrap     func(f *fleet, d driver.Driver, process int) driver.Driver
}{
	{"W1", "uses the clock of its process", func(f *fleet, d driver.Driver, process int) driver.Driver {
		ahead := time.Duration(process%2) * time.Hour
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			f.move(ahead)
			defer f.move(-ahead)
			return d.Take(ctx, r)
		}}
	}},
	{"W1", "counts for each process alone", func(_ *fleet, _ driver.Driver, _ int) driver.Driver {
		own := windows.New(func() int64 { return time.Now().UnixMicro() })
		return onTable{func() *windows.Table { return own }}
	}},
	{"W1", "grants a tenth of a window early", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			return d.Take(ctx, slower(r, func(r driver.Rate) driver.Rate { return driver.Rate{N: r.N, Per: r.Per * 9 / 10} }))
		}}
	}},
	{"W1", "fills a bucket", bucket},
	{"W2", "rounds large rates to a tenth", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			return d.Take(ctx, slower(r, func(r driver.Rate) driver.Rate {
				if r.N > driver.Exact {
					r.Per += r.Per / 10
				}
				return r
			}))
		}}
	}},
	{"W3", "consumes by a refusal", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			a, err := d.Take(ctx, r)
			if !a.Granted && r.Cost > 0 {
				_ = d.Settle(ctx, driver.Settlement{Key: r.Key, Rates: r.Rates, Actual: 1})
			}
			return a, err
		}}
	}},
	{"W3", "consumes of the rates that allow", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			a, err := d.Take(ctx, r)
			if !a.Granted && r.Cost > 0 && len(r.Rates) > 1 {
				r.Rates, r.Ticket = r.Rates[1:], ""
				_, _ = d.Take(ctx, r)
			}
			return a, err
		}}
	}},
	{"W4", "consumes by a look", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			r.Cost = max(r.Cost, 1)
			return d.Take(ctx, r)
		}}
	}},
	{"W5", "forgets the places of tickets", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			a, err := d.Take(ctx, r)
			if a.Again > 0 {
				_ = d.Withdraw(ctx, r)
			}
			return a, err
		}}
	}},
	{"W5", "has its waiters poll", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			a, err := d.Take(ctx, r)
			a.Again = min(a.Again, 5*time.Millisecond)
			return a, err
		}}
	}},
	{"W6", "keeps what is too late", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			r.MaxWait = -1
			return d.Take(ctx, r)
		}}
	}},
	{"W6", "keeps the tickets of those who give up", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, withdraw: func(driver.Driver, driver.Request) error { return nil }}
	}},
	{"W7", "returns units of all windows", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, settle: func(d driver.Driver, s driver.Settlement) error {
			if s.Actual < s.Cost {
				return d.Reset(ctx, s.Key)
			}
			return d.Settle(ctx, s)
		}}
	}},
	{"W7", "returns units of the oldest grant that it has", func(f *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, settle: func(d driver.Driver, s driver.Settlement) error {
			if back := s.Cost - s.Actual; back > 0 {
				st, err := d.Inspect(ctx, s.Key, s.Rates)
				if err != nil || st.Rates[0].Used < back {
					return err
				}
				_ = d.Reset(ctx, s.Key)
				return d.Settle(ctx, driver.Settlement{Key: s.Key, Rates: s.Rates, Actual: st.Rates[0].Used - back})
			}
			return d.Settle(ctx, s)
		}}
	}},
	{"W7", "returns units to the newest grant after a restart", func(f *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, settle: func(d driver.Driver, s driver.Settlement) error {
			f.mu.Lock()
			if f.restarts > 0 {
				s.At = f.newest
			}
			f.mu.Unlock()
			return d.Settle(ctx, s)
		}}
	}},
	{"W1", "forgets its grants in a restart", func(f *fleet, d driver.Driver, _ int) driver.Driver {
		restarted := 0
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			if _, n := f.current(); n > restarted {
				restarted = n
				_ = d.Reset(ctx, r.Key)
			}
			return d.Take(ctx, r)
		}}
	}},
	{"W7", "returns units twice", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, settle: func(d driver.Driver, s driver.Settlement) error {
			s.Actual -= max(s.Cost-s.Actual, 0)
			return d.Settle(ctx, s)
		}}
	}},
	{"W7", "returns nothing", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, settle: func(driver.Driver, driver.Settlement) error { return nil }}
	}},
	{"W7", "forgives debts", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, settle: func(d driver.Driver, s driver.Settlement) error {
			s.Actual = min(s.Actual, s.Cost)
			return d.Settle(ctx, s)
		}}
	}},
	{"W7", "keeps dead tickets", keepsDead},
	{"W8", "begins anew with another N", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			if s, _ := d.Inspect(ctx, r.Key, nil); len(s.Rates) > 0 && s.Rates[0].N != r.Rates[0].N {
				_ = d.Reset(ctx, r.Key)
			}
			return d.Take(ctx, r)
		}}
	}},
	{"W9", "takes a repeated request for another one", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		var mu sync.Mutex
		seq := uint64(0)
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			mu.Lock()
			seq++
			r.Seq = seq
			mu.Unlock()
			return d.Take(ctx, r)
		}}
	}},
	{"W9", "lets the copy of a withdrawn request in", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, withdraw: func(d driver.Driver, r driver.Request) error {
			err := d.Withdraw(ctx, r)
			next := r
			next.Seq += 1 << 20
			_ = d.Withdraw(ctx, next)
			return err
		}, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			a, err := d.Take(ctx, r)
			if r.Ticket != "" && !a.Granted && a.Again == 0 {
				r.Ticket = ""
				return d.Take(ctx, r)
			}
			return a, err
		}}
	}},
	{"W10", "waits until a clock that stepped back is right again", waitsForTheClock},
	{"W13", "ends a pause with the next one", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, pause: func(d driver.Driver, key string, p driver.Pause) error {
			_ = d.Reset(ctx, key)
			return d.Pause(ctx, key, p)
		}}
	}},
	{"W13", "keeps a pause over Reset", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, reset: func(d driver.Driver, key string) error {
			s, _ := d.Inspect(ctx, key, nil)
			err := d.Reset(ctx, key)
			if s.Paused != nil {
				_ = d.Pause(ctx, key, *s.Paused)
			}
			return err
		}}
	}},
	{"W15", "ends a pause after an hour", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, pause: func(d driver.Driver, key string, p driver.Pause) error {
			p.Left = min(p.Left, time.Hour)
			return d.Pause(ctx, key, p)
		}}
	}},
	{"W13", "does not show how long a pause lasts", showing(func(s *driver.State) {
		if s.Paused != nil {
			s.Paused = &driver.Pause{Reason: s.Paused.Reason, By: s.Paused.By}
		}
	})},
	{"W14", "shows waiters in reverse", showing(func(s *driver.State) { slices.Reverse(s.Waiters) })},
	{"W14", "hides a debt", showing(func(s *driver.State) {
		for i := range s.Rates {
			s.Rates[i].Used = min(s.Rates[i].Used, s.Rates[i].N)
		}
	})},
	{"W14", "has less than no unit left after a debt", showing(func(s *driver.State) {
		for i := range s.Rates {
			s.Rates[i].Remaining = s.Rates[i].N - s.Rates[i].Used
		}
	})},
	{"W14", "reports the end of a window that begins now", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			a, err := d.Take(ctx, r)
			if a.By >= 0 {
				a.Reset = r.Rates[a.By].Per
			}
			return a, err
		}}
	}},
	{"W14", "measures windows in milliseconds", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			return d.Take(ctx, slower(r, func(rate driver.Rate) driver.Rate {
				return driver.Rate{N: rate.N, Per: rate.Per.Truncate(time.Millisecond)}
			}))
		}}
	}},
	{"W14", "consumes by Inspect", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, inspect: func(d driver.Driver, key string, rates []driver.Rate) (driver.State, error) {
			s, err := d.Inspect(ctx, key, rates)
			if len(s.Rates) > 0 {
				_, _ = d.Take(ctx, driver.Request{Key: key, Rates: []driver.Rate{s.Rates[0].Rate}, Cost: 1})
			}
			return s, err
		}}
	}},
	{"W14", "does not show who waits", showing(func(s *driver.State) { s.Waiters = nil })},
	{"W14", "lists no key with waiters alone", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, list: func(d driver.Driver, prefix string) ([]driver.State, error) {
			all, err := d.List(ctx, prefix)
			return slices.DeleteFunc(all, func(s driver.State) bool { return len(s.Rates) == 0 && s.Paused == nil }), err
		}}
	}},
	{"W14", "does not show the spacing", showing(func(s *driver.State) {
		for i := range s.Rates {
			if s.Rates[i].Remaining > 0 {
				s.Rates[i].NextFree = 0
			}
		}
	})},
	{"W14", "lists the keys that contain the prefix", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, list: func(d driver.Driver, prefix string) ([]driver.State, error) {
			states, err := d.List(ctx, "")
			return slices.DeleteFunc(states, func(s driver.State) bool { return !strings.Contains(s.Key, prefix) }), err
		}}
	}},
	{"W15", "cuts keys at a brace", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			r.Key, _, _ = strings.Cut(r.Key, "}")
			return d.Take(ctx, r)
		}}
	}},
	{"W15", "knows only the first rate", func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
			r.Rates = r.Rates[:1]
			return d.Take(ctx, r)
		}}
	}},
}

// showing returns a driver whose Inspect returns a changed state.
func showing(change func(*driver.State)) func(*fleet, driver.Driver, int) driver.Driver {
	return func(_ *fleet, d driver.Driver, _ int) driver.Driver {
		return &broken{Driver: d, inspect: func(d driver.Driver, key string, rates []driver.Rate) (driver.State, error) {
			s, err := d.Inspect(ctx, key, rates)
			change(&s)
			return s, err
		}}
	}
}

// bucket is a token bucket for each key and rate. It lets almost 2N through one
// window.
func bucket(f *fleet, d driver.Driver, _ int) driver.Driver {
	type state struct {
		tokens float64
		at     time.Time
	}
	var mu sync.Mutex
	buckets := make(map[string]*state)
	return &broken{Driver: d, take: func(_ driver.Driver, r driver.Request) (driver.Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		now, rate := time.Now(), r.Rates[0]
		b := buckets[r.Key]
		if b == nil {
			b = &state{float64(rate.N), now}
			buckets[r.Key] = b
		}
		b.tokens = min(b.tokens+float64(rate.N)*float64(now.Sub(b.at))/float64(rate.Per), float64(rate.N))
		b.at = now
		if b.tokens < float64(r.Cost) {
			wait := time.Duration((float64(r.Cost)-b.tokens)*float64(rate.Per)/float64(rate.N)) + time.Microsecond
			a := driver.Answer{Wait: wait}
			if r.Ticket != "" && (r.MaxWait < 0 || wait <= r.MaxWait) {
				a.Again = wait
			}
			return a, nil
		}
		b.tokens -= float64(r.Cost)
		return driver.Answer{Granted: true, At: now}, nil
	}}
}

// keepsDead asks for every ticket that was ever queued.
func keepsDead(f *fleet, d driver.Driver, _ int) driver.Driver {
	var mu sync.Mutex
	var queued []driver.Request
	again := func(d driver.Driver) {
		for _, r := range queued {
			r.Seq += 1 << 20
			_, _ = d.Take(ctx, r)
		}
	}
	b := &broken{Driver: d}
	b.take = func(d driver.Driver, r driver.Request) (driver.Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		a, err := d.Take(ctx, r)
		if a.Again > 0 && r.Waiter.Host == "host" { // a ticket of the suite itself, which does not ask again
			queued = append(queued, r)
			go func() {
				for range 30 {
					time.Sleep(time.Second / 2)
					mu.Lock()
					again(d)
					mu.Unlock()
				}
			}()
		}
		return a, err
	}
	return b
}

// waitsForTheClock grants nothing while the clock reads less than it has.
func waitsForTheClock(f *fleet, d driver.Driver, _ int) driver.Driver {
	var mu sync.Mutex
	var latest int64
	return &broken{Driver: d, take: func(d driver.Driver, r driver.Request) (driver.Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		now := f.now()
		latest = max(latest, now)
		if now < latest {
			wait := time.Duration(latest-now) * time.Microsecond
			return driver.Answer{Wait: wait, Again: driver.Again(wait)}, nil
		}
		return d.Take(ctx, r)
	}}
}

// Each defect is found by a case of its rule.
func TestBrokenDriversAreCaught(t *testing.T) {
	for _, defect := range defects {
		t.Run(defect.rule+"/"+defect.is, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := limittest.Check(t.Context(), (&fleet{wrap: defect.wrap}).harness(), defect.rule)
				if err == nil {
					t.Fatalf("a driver that %s was not caught", defect.is)
				}
				if !strings.Contains(err.Error(), defect.rule+"/") {
					t.Errorf("the finding does not name %s: %v", defect.rule, err)
				}
				time.Sleep(time.Hour) // what the defect has left behind ends
			})
		})
	}
}

// A driver without defects passes, so that what is caught is the defect.
func TestSoundDriverPasses(t *testing.T) {
	for _, rule := range limittest.Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := limittest.Check(t.Context(), new(fleet).harness(), rule.ID); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestCheckRefusesAnUnknownName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := limittest.Check(t.Context(), new(fleet).harness(), "W99"); err == nil {
			t.Error("an unknown name was accepted")
		}
	})
	if err := limittest.Check(t.Context(), limittest.Harness{}); err == nil {
		t.Error("a harness without Open was accepted")
	}
}
