package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// fleet makes any table look like one that several processes share, whose
// replies have a way to go; each process has a front of its own before it.
type fleet struct{ driver.Driver }

func (f fleet) Info() driver.Info {
	info := f.Driver.Info()
	info.Scope = driver.Fleet
	return info
}

// Acquire of a remote table does not know what became of a request whose
// context ended.
func (f fleet) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := f.Driver.Acquire(ctx, r)
	if err != nil && ctx.Err() != nil {
		return g, ctx.Err()
	}
	return g, err
}

// deaf keeps the holder from hearing of a loss before its next renewal.
type deaf struct{ driver.Driver }

func (d deaf) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := d.Driver.Acquire(ctx, r)
	g.Lost = nil
	return g, err
}

// stalled lets no renewal through.
type stalled struct{ driver.Driver }

func (stalled) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	<-ctx.Done()
	renewals := make([]driver.Renewal, len(grants))
	for i := range renewals {
		renewals[i].Err = fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	return renewals
}

// late delivers the reply of one acquire in so many after a time, and the
// deadline as it should be: counted from when the request was sent.
type late struct {
	driver.Driver
	by    time.Duration
	every int64
	asked *atomic.Int64
}

func (l late) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := l.Driver.Acquire(ctx, r)
	if l.asked.Add(1)%l.every == 0 {
		time.Sleep(l.by)
	}
	return g, err
}

// fromReceipt is late and counts the deadline from when the reply came.
type fromReceipt struct{ late }

func (f fromReceipt) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := f.late.Acquire(ctx, r)
	g.Deadline = driver.Deadline(driver.Now(), r.TTL)
	return g, err
}

// releasesAnything releases without comparing the token.
type releasesAnything struct{ driver.Driver }

func (r releasesAnything) Release(ctx context.Context, g driver.Grant) error {
	err := r.Driver.Release(ctx, g)
	if errors.Is(err, driver.ErrLost) {
		_, err = r.ForceRelease(ctx, g.Key, driver.Force{Reason: "whoever it is"})
	}
	return err
}

// grantsTwice asks another table every few times.
type grantsTwice struct {
	driver.Driver
	other driver.Driver
	asked *atomic.Int64
}

func (g grantsTwice) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if g.asked.Add(1)%5 == 0 {
		return g.other.Acquire(ctx, r)
	}
	return g.Driver.Acquire(ctx, r)
}

func (g grantsTwice) Release(ctx context.Context, x driver.Grant) error {
	err := g.Driver.Release(ctx, x)
	if errors.Is(err, driver.ErrLost) {
		return g.other.Release(ctx, x)
	}
	return err
}

func (g grantsTwice) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals, others := g.Driver.Renew(ctx, grants), g.other.Renew(ctx, grants)
	for i, r := range renewals {
		if r.Err != nil {
			renewals[i] = others[i]
		}
	}
	return renewals
}

func (g grantsTwice) Close(ctx context.Context) error {
	return errors.Join(g.Driver.Close(ctx), g.other.Close(ctx))
}

// countsBackwards counts backwards.
type countsBackwards struct{ driver.Driver }

func (f countsBackwards) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := f.Driver.Acquire(ctx, r)
	g.Fence = 1<<52 - uint64(time.Now().UnixMicro())
	return g, err
}

// leavesGhosts loses every fifth release on its way and reports that it was done.
type leavesGhosts struct {
	driver.Driver
	asked *atomic.Int64
}

func (l leavesGhosts) Release(ctx context.Context, g driver.Grant) error {
	if l.asked.Add(1)%5 == 0 {
		return nil
	}
	return l.Driver.Release(ctx, g)
}

// crowd has several processes take turns at one key: they wait, try, give up,
// hold, extend, and hold on for too long.
func crowd(t *testing.T, d driver.Driver) history.History {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history")
	var clients sync.WaitGroup
	for i := range 4 {
		l := open(t, d)
		c := history.NewClient(fmt.Sprint("c", i), l, record(t, path, fmt.Sprint("p", i)))
		clients.Go(func() { use(t, c) })
	}
	clients.Wait()
	return read(t, path)
}

const crowdTTL = 100 * time.Millisecond

func use(t *testing.T, c *history.Client) {
	t.Helper()
	ctx := t.Context()
	for range 20 {
		patience := time.Duration(rand.IntN(200)) * time.Millisecond
		if rand.IntN(4) == 0 {
			giveUp(ctx, c)
			continue
		}
		opts := []lock.Option{lock.TTL(crowdTTL), lock.Wait(patience)}
		if rand.IntN(4) > 0 {
			opts = append(opts, lock.NoRenew())
		}
		lease, err := c.Acquire(ctx, "k", 1, opts...)
		if err != nil {
			continue
		}
		hold := time.Duration(rand.IntN(20)) * time.Millisecond
		if rand.IntN(6) == 0 {
			hold = crowdTTL // too long, unless it is renewed
		}
		sleep(lease.Context(), hold)
		if rand.IntN(4) == 0 {
			_ = lease.Extend(ctx, crowdTTL)
		}
		_ = lease.Release()
	}
}

// giveUp leaves while it waits.
func giveUp(ctx context.Context, c *history.Client) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(5))*time.Millisecond)
	defer cancel()
	if lease, err := c.Acquire(ctx, "k", 1, lock.TTL(crowdTTL), lock.NoRenew()); err == nil {
		_ = lease.Release()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func TestSoundDriversPass(t *testing.T) {
	for name, d := range map[string]driver.Driver{
		"memory":             memory.NewLock(),
		"shared":             fleet{memory.NewLock()},
		"deaf":               fleet{deaf{memory.NewLock()}},
		"late":               fleet{late{memory.NewLock(), crowdTTL / 2, 3, new(atomic.Int64)}},
		"late and stalled":   fleet{stalled{late{memory.NewLock(), crowdTTL / 2, 3, new(atomic.Int64)}}},
		"stalled and shared": fleet{stalled{memory.NewLock()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := crowd(t, d)
			if err := h.CheckServer(bound); err != nil {
				t.Errorf("server: %v", err)
			}
			if err := h.CheckBeliefs(0); err != nil {
				t.Errorf("beliefs: %v", err)
			}
			if len(h.Beliefs) < 10 {
				t.Errorf("only %d leases were granted", len(h.Beliefs))
			}
		})
	}
}

func TestBrokenDriversAreFlagged(t *testing.T) {
	tests := []struct {
		name            string
		d               driver.Driver
		server, beliefs bool // which of the checks must see it
	}{
		{"a release without compare", fleet{deaf{releasesAnything{memory.NewLock()}}}, true, true},
		{"a grant to two", fleet{grantsTwice{memory.NewLock(), memory.NewLock(), new(atomic.Int64)}}, true, true},
		{"fences that fall", fleet{countsBackwards{memory.NewLock()}}, true, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := crowd(t, test.d)
			flagged(t, "server", h.CheckServer(bound), test.server)
			flagged(t, "beliefs", h.CheckBeliefs(0), test.beliefs)
		})
	}
}

// One holds on until its context ends, having been told late; another waits.
func TestDeadlineCountedFromReceiptIsFlagged(t *testing.T) {
	const ttl = 5 * crowdTTL // half of which is more than a busy machine takes to let the other in
	for _, test := range []struct {
		name   string
		first  func(driver.Driver) driver.Driver
		broken bool
	}{
		{"from sending", func(d driver.Driver) driver.Driver { return late{d, ttl / 2, 1, new(atomic.Int64)} }, false},
		{"from receipt", func(d driver.Driver) driver.Driver { return fromReceipt{late{d, ttl / 2, 1, new(atomic.Int64)}} }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "history")
			table := memory.NewLock()
			a := history.NewClient("a", open(t, fleet{test.first(table)}), record(t, path, "a"))
			b := history.NewClient("b", open(t, fleet{table}), record(t, path, "b"))
			first, err := a.Acquire(t.Context(), "k", 1, lock.TTL(ttl), lock.NoRenew())
			must(t, err)
			second, err := b.Acquire(t.Context(), "k", 1, lock.TTL(10*ttl))
			must(t, err)
			<-first.Context().Done()
			must(t, second.Release())
			_ = first.Release()
			h := waitFor(t, path, "both releases", func(h history.History) bool { return len(h.Ops) == 4 })
			flagged(t, "server", h.CheckServer(bound), test.broken)
			flagged(t, "beliefs", h.CheckBeliefs(0), test.broken)
		})
	}
}

func flagged(t *testing.T, check string, err error, want bool) {
	t.Helper()
	if (err != nil) != want || err != nil && strings.Contains(err.Error(), "not decided") {
		t.Errorf("%s: %v, want flagged = %v", check, err, want)
	}
}

// One client after the other, nobody waiting: a lock that says busy is held by
// nobody.
func TestGhostLeaseIsFlagged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	d := fleet{leavesGhosts{memory.NewLock(), new(atomic.Int64)}}
	a := history.NewClient("a", open(t, d), record(t, path, "a"))
	b := history.NewClient("b", open(t, d), record(t, path, "b"))
	for range 10 {
		for _, c := range []*history.Client{a, b} {
			if lease, err := c.TryAcquire(t.Context(), "k", 1, lock.TTL(time.Minute)); err == nil {
				_ = lease.Release()
			}
		}
	}
	flagged(t, "server", read(t, path).CheckServer(bound), true)
}

// losesHandbacks releases slots without what becomes of them.
type losesHandbacks struct{ driver.PoolDriver }

func (l losesHandbacks) Release(ctx context.Context, g driver.Grant) error {
	g.Handback = nil
	return l.PoolDriver.Release(ctx, g)
}

// remote is fleet for a driver of pools.
type remote struct{ driver.PoolDriver }

func (r remote) Info() driver.Info { return fleet{r.PoolDriver}.Info() }

// poolCrowd has several processes take turns at a pool of two.
func poolCrowd(t *testing.T, d driver.Driver) history.History {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history")
	var clients sync.WaitGroup
	for i := range 4 {
		l := open(t, d)
		r := record(t, path, fmt.Sprint("p", i))
		c := history.NewClient(fmt.Sprint("c", i), l, r)
		clients.Go(func() {
			for range 30 {
				_ = c.UseSlot(t.Context(), "boxes", 2, time.Minute)
			}
		})
	}
	operator := history.NewClient("operator", open(t, d), record(t, path, "operator"))
	for range 5 {
		time.Sleep(5 * time.Millisecond)
		_, err := operator.ForceRelease(t.Context(), "boxes", "a test")
		must(t, err)
	}
	clients.Wait()
	return read(t, path)
}

func TestSoundPoolsPass(t *testing.T) {
	for name, d := range map[string]driver.Driver{"memory": memory.NewLock(), "shared": remote{memory.NewLock()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := poolCrowd(t, d)
			if err := h.CheckServer(bound); err != nil {
				t.Errorf("server: %v", err)
			}
			if found := h.CleanErrors(); len(found) > 0 {
				t.Errorf("clean slots: %v", found)
			}
		})
	}
}

func TestBrokenPoolsAreFlagged(t *testing.T) {
	tests := []struct {
		name          string
		d             driver.Driver
		server, clean bool // which of the checks must see it
	}{
		{"a driver that forgets who left a slot", remote{history.Forgets{PoolDriver: memory.NewLock()}}, true, true},
		{"a driver that takes every slot for clean", remote{history.TakesForClean{PoolDriver: memory.NewLock()}}, true, true},
		{"a driver that loses handbacks", remote{losesHandbacks{memory.NewLock()}}, true, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := poolCrowd(t, test.d)
			flagged(t, "server", h.CheckServer(bound), test.server)
			if found := h.CleanErrors(); (len(found) > 0) != test.clean {
				t.Errorf("clean slots: %v, want flagged = %v", found, test.clean)
			}
		})
	}
}
