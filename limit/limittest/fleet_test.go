package limittest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/limit/limittest"
	"github.com/megaframework/mega/lock"
)

// fleet is a backend on fake time, whose clock can step, with processes that
// can lose replies.
type fleet struct {
	wrap func(f *fleet, d driver.Driver, process int) driver.Driver // breaks a process; nil for none

	mu        sync.Mutex // guards the fields below
	table     *windows.Table
	step      time.Duration // of the backend's clock
	processes int
	drops     map[driver.Driver]bool
	restarts  int
	copies    []windows.Record // that each process had at its start
	newest    time.Time        // of the newest grant
}

func (f *fleet) harness() limittest.Harness {
	return limittest.Harness{
		Begin:    f.begin,
		Open:     f.open,
		Locker:   func() (*lock.Locker, error) { return lock.New(memory.NewLock(), lock.Config{}) },
		FakeTime: true,
		Faults: limittest.Faults{
			StepClock: func(by time.Duration) (func() error, error) {
				f.move(by)
				return func() error { f.move(-by); return nil }, nil
			},
			DropReply: func(d driver.Driver) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.drops[d] = true
				return nil
			},
			Restart: f.restart,
		},
	}
}

func (f *fleet) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step, f.processes, f.restarts, f.copies, f.drops = 0, 0, 0, nil, make(map[driver.Driver]bool)
	f.table = windows.New(f.now)
	return nil
}

// restart has a table follow that is told what the last one had granted. Copies that
// lack the newest grants come first.
func (f *fleet) restart() error {
	next := windows.New(f.now)
	f.mu.Lock()
	last, copies := f.table, f.copies
	f.table = next
	f.restarts++
	f.mu.Unlock()
	for _, r := range slices.AppendSeq(copies, last.Records()) {
		if _, err := next.Restore(r); err != nil {
			return err
		}
	}
	return nil
}

// current returns the table, and how often it was replaced.
func (f *fleet) current() (*windows.Table, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table, f.restarts
}

func (f *fleet) move(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step += by
}

func (f *fleet) now() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.step).UnixMicro()
}

func (f *fleet) open() (driver.Driver, error) {
	table, _ := f.current()
	known := slices.Collect(table.Records())
	f.mu.Lock()
	f.processes++
	n := f.processes
	f.copies = append(f.copies, known...)
	f.mu.Unlock()
	p := &client{fleet: f}
	p.Driver = onTable{func() *windows.Table { table, _ := f.current(); return table }}
	if f.wrap != nil {
		p.Driver = f.wrap(f, p.Driver, n)
	}
	return p, nil
}

// client is one process of a fleet.
type client struct {
	driver.Driver
	fleet *fleet
}

func (c *client) Info() driver.Info { return driver.Info{Name: "fleet", Scope: driver.Fleet} }

func (c *client) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	a, err := c.Driver.Take(ctx, r)
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	if a.Granted {
		c.fleet.newest = a.At
	}
	if c.fleet.drops[c] {
		delete(c.fleet.drops, c)
		return driver.Answer{}, errors.New("the reply is lost")
	}
	return a, err
}

// onTable is a driver over a table that others use too.
type onTable struct{ table func() *windows.Table }

func (d onTable) Info() driver.Info { return driver.Info{Name: "table", Scope: driver.Fleet} }

func (d onTable) Take(_ context.Context, r driver.Request) (driver.Answer, error) {
	return d.table().Take(&r)
}

func (d onTable) Withdraw(_ context.Context, r driver.Request) error { return d.table().Withdraw(&r) }

func (d onTable) Settle(_ context.Context, s driver.Settlement) error { return d.table().Settle(&s) }

func (d onTable) Pause(_ context.Context, key string, p driver.Pause) error {
	return d.table().Pause(key, p)
}

func (d onTable) Reset(_ context.Context, key string) error { return d.table().Reset(key) }

func (d onTable) Inspect(_ context.Context, key string, rates []driver.Rate) (driver.State, error) {
	return d.table().Inspect(key, rates)
}

func (d onTable) List(_ context.Context, prefix string) ([]driver.State, error) {
	return d.table().List(prefix)
}

func (d onTable) Close(context.Context) error { return nil }
