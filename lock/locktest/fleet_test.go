package locktest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// fleet is a harness of several processes over one table in memory, which the
// front takes for a remote backend. With it the front's local queue and its
// answers to an unreachable backend run on fake time. Between each process and
// the table is a wire that can be cut.
type fleet struct {
	// Two places at which a driver can be broken on purpose: the table, and
	// the side of a process.
	breakTable, breakClient func(driver.Driver) driver.Driver
	// asks makes the drivers implement driver.Asker.
	asks bool

	table   driver.Driver
	wires   map[driver.Driver]*wire
	full    atomic.Bool
	denied  atomic.Bool  // no client has a permission
	without atomic.Value // string: the call for which clients have no permission
	alien   sync.Map     // keys at which something else is
	later   sync.Map     // keys whose data is of a later version
}

func (f *fleet) harness() locktest.Harness {
	return locktest.Harness{
		Begin:    f.begin,
		Open:     f.open,
		FakeTime: true,
		Faults: locktest.Faults{
			DropReply: f.dropReply,
			Delay:     f.delay,
			Partition: f.partition,
			Deafen:    f.deafen,
			Crash:     f.crash,
			Leave:     f.leave,
			Refuse:    f.refuse,
			Lose:      f.lose,
			Deny:      f.deny,
			Forbid:    f.forbid, Permissions: []string{"acquire", "renew", "release"},
			Newer:   f.newer,
			Beside:  f.leave, // the table has one version
			Foreign: f.put,
			Corrupt: f.put,
		},
	}
}

func (f *fleet) begin() error {
	f.table = memory.NewLock()
	if f.breakTable != nil {
		f.table = f.breakTable(f.table)
	}
	f.wires = make(map[driver.Driver]*wire)
	f.full.Store(false)
	f.denied.Store(false)
	f.without.Store("")
	f.alien.Clear()
	f.later.Clear()
	return nil
}

func (f *fleet) open() (driver.Driver, error) {
	d, err := locktest.Share(f.table, driver.Fleet)()
	w := &wire{Driver: &store{d, f}, open: make(chan struct{})}
	var client driver.Driver = w
	if f.asks {
		w.Driver = &askingStore{&store{d, f}}
		client = &askingWire{w}
	}
	w.drop = locktest.Faulty(w.Driver, &w.plan)
	if f.breakClient != nil {
		client = f.breakClient(client)
	}
	f.wires[client] = w
	return client, errors.Join(err, f.rehearse(client))
}

// rehearse returns why a client could not use the table, if it has no permission.
func (f *fleet) rehearse(client driver.Driver) error {
	if !f.denied.Load() {
		return nil
	}
	_, err := client.Acquire(context.Background(), driver.Request{Key: "rehearsal", Token: "rehearsal", TTL: time.Second, Slots: 1, Fences: 1})
	return err
}

func (f *fleet) dropReply(d driver.Driver, op locktest.Op) error {
	f.wires[d].plan.Add(locktest.Step{Op: op, Executed: true, Err: fmt.Errorf("%w: connection reset", driver.ErrUnavailable), Times: 1})
	return nil
}

func (f *fleet) delay(d driver.Driver, op locktest.Op, by time.Duration) error {
	f.wires[d].plan.Add(locktest.Step{Op: op, Executed: true, Delay: by, Times: 1})
	return nil
}

func (f *fleet) partition(d driver.Driver) (undo func() error, err error) {
	return f.wires[d].cut(true), nil
}

func (f *fleet) deafen(d driver.Driver) (undo func() error, err error) {
	return f.wires[d].cut(false), nil
}

// crash makes the table see a closed connection, and the process nothing.
func (f *fleet) crash(d driver.Driver) error {
	f.wires[d].cut(true)
	err := f.wires[d].Driver.Close(context.Background())
	synctest.Wait() // a request that leaves the queue late would be granted to the dead process
	return err
}

// leave lets the processes connect to a backend with the same table, which a
// sound process does not notice.
func (f *fleet) leave() error {
	for client := range f.wires {
		if b, ok := client.(*broken); ok && b.rejoin != nil {
			b.rejoin(b.Driver)
		}
	}
	return nil
}

func (f *fleet) refuse() (undo func() error, err error) {
	f.full.Store(true)
	return func() error { f.full.Store(false); return nil }, nil
}

func (f *fleet) deny() (undo func() error, err error) {
	f.denied.Store(true)
	return func() error { f.denied.Store(false); return nil }, nil
}

func (f *fleet) forbid(call string) (undo func() error, err error) {
	f.without.Store(call)
	return func() error { f.without.Store(""); return nil }, nil
}

// lose ends all leases of the table, as a client finds them after a reconnect.
func (f *fleet) lose() error {
	all, err := f.table.List(context.Background(), "")
	for _, s := range all {
		_, forced := f.table.ForceRelease(context.Background(), s.Key, driver.Force{Reason: "the data is lost"})
		err = errors.Join(err, forced)
	}
	return err
}

func (f *fleet) newer(key string) (call func() error, versions [2]string, err error) {
	f.later.Store(key, true)
	return func() error {
		d, err := f.open()
		if err != nil {
			return err
		}
		_, err = d.Acquire(context.Background(), driver.Request{Key: key, Token: "newer", TTL: time.Second, Slots: 1, Fences: 1})
		return errors.Join(err, d.Close(context.Background()))
	}, [2]string{"format 9", "format 3"}, nil
}

func (f *fleet) put(key string) error {
	f.alien.Store(key, true)
	return nil
}

// store is the table of a fleet that may be full, and may hold something else.
type store struct {
	driver.Driver
	fleet *fleet
}

const notALock = "the value is not a lease"

// check returns why a write to key is refused.
func (s *store) check(key string) error {
	if s.fleet.full.Load() {
		return fmt.Errorf("%w: out of memory", driver.ErrUnavailable)
	}
	if s.fleet.denied.Load() {
		return fmt.Errorf("%w: no permission", driver.ErrUnavailable)
	}
	if _, ok := s.fleet.later.Load(key); ok {
		return fmt.Errorf("%w: the data has format 9, this program format 3", driver.ErrUnavailable)
	}
	if _, ok := s.fleet.alien.Load(key); ok {
		return fmt.Errorf("%w: %s", driver.ErrUnavailable, notALock)
	}
	return nil
}

// allowed returns why clients may not make a call.
func (s *store) allowed(call string) error {
	if s.fleet.without.Load() == call {
		return fmt.Errorf("%w: no permission to %s", driver.ErrUnavailable, call)
	}
	return nil
}

func (s *store) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if err := s.allowed("renew"); err != nil {
		return slices.Repeat([]driver.Renewal{{Err: err}}, len(grants))
	}
	return s.Driver.Renew(ctx, grants)
}

func (s *store) Release(ctx context.Context, g driver.Grant) error {
	if err := s.allowed("release"); err != nil {
		return err
	}
	return s.Driver.Release(ctx, g)
}

func (s *store) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := cmp.Or(s.allowed("acquire"), s.check(r.Key)); err != nil {
		return driver.Grant{}, err
	}
	return s.Driver.Acquire(ctx, r)
}

// askingStore is a store whose Acquire has two parts.
type askingStore struct{ *store }

func (s *askingStore) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	if err := cmp.Or(s.allowed("acquire"), s.check(r.Key)); err != nil {
		return driver.Grant{}, nil, err
	}
	return s.Driver.(driver.Asker).Ask(ctx, r)
}

func (s *store) ForceRelease(ctx context.Context, key string, f driver.Force) (int, error) {
	if err := s.check(key); err != nil {
		return 0, err
	}
	return s.Driver.ForceRelease(ctx, key, f)
}

func (s *store) Heal(ctx context.Context, key string, slot int, reason string, by driver.Holder) error {
	if err := s.check(key); err != nil {
		return err
	}
	return s.Driver.(driver.PoolDriver).Heal(ctx, key, slot, reason, by)
}

func (s *store) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	if err := s.check(g.Key); err != nil {
		return driver.Run{}, err
	}
	return s.Driver.(driver.Runner).BeginRun(ctx, g, every, spend)
}

func (s *store) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	if err := s.check(g.Key); err != nil {
		return err
	}
	return s.Driver.(driver.Runner).EndRun(ctx, g, r)
}

func (s *store) Inspect(ctx context.Context, key string) (driver.State, error) {
	if _, ok := s.fleet.alien.Load(key); ok {
		return driver.State{Key: key, Skipped: notALock}, nil
	}
	return s.Driver.Inspect(ctx, key)
}

func (s *store) List(ctx context.Context, prefix string) ([]driver.State, error) {
	states, err := s.Driver.List(ctx, prefix)
	s.fleet.alien.Range(func(key, _ any) bool {
		if strings.HasPrefix(key.(string), prefix) {
			states = append(states, driver.State{Key: key.(string), Skipped: notALock})
		}
		return true
	})
	slices.SortFunc(states, func(a, b driver.State) int { return strings.Compare(a.Key, b.Key) })
	return states, err
}

// wire is one process's way to the table.
type wire struct {
	driver.Driver
	plan locktest.Plan
	drop driver.Driver // Driver, disturbed by plan

	mu      sync.Mutex // guards the fields below
	open    chan struct{}
	isCut   bool
	outward bool // the requests are lost too
}

func (w *wire) cut(outward bool) (heal func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut, w.outward, w.open = true, outward, make(chan struct{})
	return func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.isCut = false
		close(w.open)
		return nil
	}
}

// state returns what is cut, and what is closed when it is whole again.
func (w *wire) state() (requests, replies bool, whole <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isCut && w.outward, w.isCut, w.open
}

// send makes a call over the wire. A call that is lost is waited for until its
// context ends.
func (w *wire) send(ctx context.Context, call func()) error {
	if requests, _, _ := w.state(); requests {
		<-ctx.Done()
		return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, ctx.Err())
	}
	call()
	if _, replies, _ := w.state(); replies {
		<-ctx.Done()
		return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, ctx.Err())
	}
	return nil
}

// Acquire rides out a cut once it is queued: its answer comes when the wire is
// whole again.
func (w *wire) Acquire(ctx context.Context, r driver.Request) (g driver.Grant, err error) {
	if err := w.carry(ctx); err != nil {
		return g, err
	}
	g, err = w.drop.Acquire(ctx, r)
	if gone := w.carryBack(ctx); gone != nil {
		return driver.Grant{}, gone
	}
	return g, err
}

// carry returns when a request has arrived.
func (w *wire) carry(ctx context.Context) error {
	if requests, _, whole := w.state(); requests {
		select {
		case <-whole:
		case <-time.After(driver.CallTimeout):
			return fmt.Errorf("%w: no answer", driver.ErrUnavailable)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// carryBack returns when an answer has arrived.
func (w *wire) carryBack(ctx context.Context) error {
	if _, replies, whole := w.state(); replies {
		select {
		case <-whole:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// askingWire is a wire whose Acquire has two parts.
type askingWire struct{ *wire }

func (w *askingWire) Ask(ctx context.Context, r driver.Request) (driver.Grant, func(context.Context) (driver.Grant, error), error) {
	if err := w.carry(ctx); err != nil {
		return driver.Grant{}, nil, err
	}
	g, wait, err := w.drop.(driver.Asker).Ask(ctx, r)
	if gone := w.carryBack(ctx); gone != nil {
		return driver.Grant{}, nil, gone
	}
	if wait == nil {
		return g, nil, err
	}
	arrived := false
	var granted driver.Grant
	return g, func(ctx context.Context) (driver.Grant, error) {
		if !arrived {
			if granted, err = wait(ctx); errors.Is(err, driver.ErrPaused) {
				return driver.Grant{}, err
			}
			arrived = true
		}
		if gone := w.carryBack(ctx); gone != nil {
			if driver.Paused(ctx) {
				gone = driver.ErrPaused
			}
			return driver.Grant{}, gone
		}
		return granted, err
	}, nil
}

func (w *wire) Renew(ctx context.Context, grants []driver.Grant) (renewals []driver.Renewal) {
	err := w.send(ctx, func() { renewals = w.drop.Renew(ctx, grants) })
	if err != nil {
		renewals = make([]driver.Renewal, len(grants))
		for i := range renewals {
			renewals[i].Err = err
		}
	}
	return renewals
}

func (w *wire) Release(ctx context.Context, g driver.Grant) (err error) {
	if lost := w.send(ctx, func() { err = w.drop.Release(ctx, g) }); lost != nil {
		return lost
	}
	return err
}

func (w *wire) ForceRelease(ctx context.Context, key string, f driver.Force) (n int, err error) {
	if lost := w.send(ctx, func() { n, err = w.drop.ForceRelease(ctx, key, f) }); lost != nil {
		return 0, lost
	}
	return n, err
}

func (w *wire) Heal(ctx context.Context, key string, slot int, reason string, by driver.Holder) (err error) {
	if lost := w.send(ctx, func() { err = w.drop.(driver.PoolDriver).Heal(ctx, key, slot, reason, by) }); lost != nil {
		return lost
	}
	return err
}

func (w *wire) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (r driver.Run, err error) {
	if lost := w.send(ctx, func() { r, err = w.drop.(driver.Runner).BeginRun(ctx, g, every, spend) }); lost != nil {
		return driver.Run{}, lost
	}
	return r, err
}

func (w *wire) EndRun(ctx context.Context, g driver.Grant, r driver.Run) (err error) {
	if lost := w.send(ctx, func() { err = w.drop.(driver.Runner).EndRun(ctx, g, r) }); lost != nil {
		return lost
	}
	return err
}

func (w *wire) Inspect(ctx context.Context, key string) (s driver.State, err error) {
	if lost := w.send(ctx, func() { s, err = w.drop.Inspect(ctx, key) }); lost != nil {
		return driver.State{}, lost
	}
	return s, err
}

func (w *wire) List(ctx context.Context, prefix string) (states []driver.State, err error) {
	if lost := w.send(ctx, func() { states, err = w.drop.List(ctx, prefix) }); lost != nil {
		return nil, lost
	}
	return states, err
}
