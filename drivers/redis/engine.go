package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/lock/driver"
)

// engine is the part that both engines share: all that concerns a grant after
// it was given.
type engine struct {
	caller
	info    driver.Info
	layout  *layout
	scripts *scripts
	client  goredis.UniversalClient
	opening opening
	// side has room for one user of the client beside the calls, so that the
	// number of connections is fixed.
	side chan struct{}

	unpushed func() // called when the server has refused the push of a release

	claims  *claims
	calls   sync.WaitGroup // Acquires in flight, and what the driver does by itself
	closing atomic.Bool
	closed  chan struct{} // closed when nothing is left
}

func (o opening) engine(l look, name string) *engine {
	all := newScripts(l.layout, false)
	if c, ok := o.connection.backend.(*cluster); ok {
		c.moving.use(all, newScripts(l.layout, true))
	}
	return &engine{
		caller:   caller{o.connection.backend},
		info:     driver.Info{Name: "redis", Engine: name, Scope: driver.Fleet, Format: format, Warnings: l.warnings, Lacks: l.lacks},
		layout:   l.layout,
		scripts:  all,
		client:   o.connection.client,
		opening:  o,
		side:     make(chan struct{}, 1),
		unpushed: func() {},
		claims:   newClaims(),
		closed:   make(chan struct{}),
	}
}

// Info returns the driver's properties, and its findings at the server.
func (e *engine) Info() driver.Info {
	info := e.info
	info.Warnings, info.Lacks = slices.Clone(info.Warnings), slices.Clone(info.Lacks)
	return info
}

// begin counts a call in, unless the driver is closed.
func (e *engine) begin() error {
	e.claims.mu.Lock()
	defer e.claims.mu.Unlock()
	if e.claims.closed {
		return driver.ErrClosed
	}
	e.calls.Add(1)
	return nil
}

// leaving returns a call of release. loose means that a copy of the token's acquire
// may be on its way, and handed is the handback of a slot with a state.
func (e *engine) leaving(holder, token string, loose bool, notice string, handed ...string) request {
	bar := yesNo(loose)
	switch {
	case len(handed) == 0 && !loose && notice == no:
		return e.scripts.release.on(holder, token)
	case len(handed) == 0:
		return e.scripts.release.on(holder, token, bar, notice)
	}
	return e.scripts.release.on(holder, append([]string{token, bar, notice}, handed...)...)
}

// Renew implements [driver.Driver].
func (e *engine) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	if e.closing.Load() {
		return slices.Repeat([]driver.Renewal{{Err: driver.ErrClosed}}, len(grants))
	}
	return e.renew(ctx, grants)
}

// Release implements [driver.Driver].
func (e *engine) Release(ctx context.Context, g driver.Grant) error {
	if e.closing.Load() {
		return driver.ErrClosed
	}
	if g.Rest > 0 {
		return e.rest(ctx, g)
	}
	c, loose := e.claims.leave(g.Token)
	if c == nil {
		c = &claim{name: e.layout.holder(g.Key), r: driver.Request{Key: g.Key, Token: g.Token, TTL: g.TTL}}
	}
	if g.Handback == nil {
		g.Handback = e.claims.unused(g.Token)
	}
	o, err := e.run(ctx, e.leaving(c.name, g.Token, loose, no, handback(g.Handback, g.Slot)...))
	if err != nil {
		// Another release is to be expected; if none comes, Close does it.
		e.claims.add(c)
		e.claims.abandon(c)
		return err
	}
	e.claims.remove(g.Token)
	switch o.reply {
	case any(int64(1)):
		return nil
	case any(int64(2)):
		e.unpushed()
		return nil
	}
	a, err := check(o.reply, 1)
	if err != nil {
		return err
	}
	if a.num(4) != 0 {
		e.unpushed()
	}
	// The first copy of a repeated call may have released the lease, and another
	// server may not know a lease that was never lost. In both cases the lease
	// was not lost. L5
	reason := a.text(3)
	if a.num(0) == 1 || reason == "" && (o.again || e.claims.changed(c)) {
		return nil
	}
	return lostBy(g.Key, reason)
}

// rest leaves the grant to its expiry, after g.Rest: a renewal that nobody
// repeats. The next waiter learns that the key becomes free earlier.
func (e *engine) rest(ctx context.Context, g driver.Grant) error {
	mode := rests
	if e.claims.isLoose(g.Token) {
		mode = restsBarred
	}
	r := e.scripts.confirm.on(e.layout.holder(g.Key), g.Token, "", digits(g.Rev), mode)
	start, rest := driver.Now(), len(r.args)-3
	o, err := e.send(ctx, r.script.name, r.key, func(whole bool) []string {
		args := r.command(whole)
		left := g.Rest - driver.Now().Sub(start) // the attempts before took a part of it. O5
		args[rest] = digits(millis(max(left, time.Millisecond)))
		return args
	})
	if err != nil {
		return err
	}
	a, err := check(o.reply, 1)
	if err != nil {
		return err
	}
	c := e.claims.find(g.Token)
	moved := c != nil && e.claims.changed(c)
	e.claims.remove(g.Token)
	reason := a.sub(0).text(1)
	if a.sub(0).num(0) == 1 || reason == "" && (o.again || moved) { // the rest may be over. L5
		return nil
	}
	return lostBy(g.Key, reason)
}

// ForceRelease implements [driver.Driver].
func (e *engine) ForceRelease(ctx context.Context, key string, f driver.Force) (int, error) {
	if e.closing.Load() {
		return 0, driver.ErrClosed
	}
	why, err := json.Marshal(forced{Reason: f.Reason, By: f.By})
	if err != nil {
		return 0, fmt.Errorf("force: %w", err)
	}
	var slot, fence string
	if f.BySlot {
		slot = digits(f.Slot)
	}
	if f.ByFence {
		fence = strconv.FormatUint(f.Fence, 10)
	}
	o, err := e.run(ctx, e.scripts.force.on(e.layout.holder(key), newID(), string(why), slot, fence))
	if err != nil {
		if why, foreign := unreadable("lock", err); foreign && isWrongType(err) { // L16
			return 0, fmt.Errorf("%w: force %q: %s", driver.ErrInvalid, key, why)
		}
		return 0, err
	}
	n, _ := o.reply.(int64)
	if n < 0 { // L16
		return 0, fmt.Errorf("%w: the value of %q is not a lease", driver.ErrInvalid, key)
	}
	return int(n), nil
}

// Inspect implements [driver.Driver].
func (e *engine) Inspect(ctx context.Context, key string) (driver.State, error) {
	if e.closing.Load() {
		return driver.State{}, driver.ErrClosed
	}
	o, err := e.run(ctx, e.scripts.inspect.on(e.layout.holder(key)))
	if err != nil {
		if why, foreign := unreadable("lock", err); foreign {
			return driver.State{Key: key, Skipped: why}, nil // L23
		}
		return driver.State{}, err
	}
	return decodeState(key, o.reply)
}

// decodeState reads the answer of inspect.
func decodeState(key string, reply any) (driver.State, error) {
	a, err := check(reply, 2)
	if err != nil {
		return driver.State{}, err
	}
	if a.num(0) < 0 {
		return driver.State{Key: key, Skipped: "the value is a " + a.text(1) + " that is not a lease"}, nil
	}
	s := driver.State{Key: key, Size: int(a.num(0)), Holders: holdings(a.sub(1))}
	slices.SortFunc(s.Holders, func(a, b driver.Holding) int { return a.Slot - b.Slot })
	s.Slots = slotStates(a.sub(4))
	waiting := a.sub(2)
	for i := range waiting {
		s.Waiters = append(s.Waiters, decodeRecord(waiting.text(i)))
	}
	if len(a) > 3 {
		s.LastRun = decodeRun(a.text(3)) // O4
	}
	return s, nil
}

// holdings reads slot, time left and value of each holder.
func holdings(held answer) []driver.Holding {
	var out []driver.Holding
	for i := 0; i+2 < len(held); i += 3 {
		holder, fence := decodeValue(held.text(i + 2))
		left := time.Duration(math.MaxInt64) // a key without a TTL
		if ms := held.num(i + 1); ms >= 0 {
			left = time.Duration(ms) * time.Millisecond
		}
		out = append(out, driver.Holding{Holder: holder, Slot: int(held.num(i)), Fence: fence, Left: left})
	}
	return out
}

// tidy releases what was left by Acquires whose outcome is not known.
func (e *engine) tidy() {
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	each(ctx, e.backend, e.claims.orphans(), func(c *claim) string { return c.name }, func(c *claim) {
		back := handback(e.claims.unused(c.r.Token), 0)
		_, _ = e.run(ctx, e.leaving(c.name, c.r.Token, true, no, back...))
	})
}

// close ends the engine in order; shut ends what it has beside the calls.
func (e *engine) close(ctx context.Context, shut func()) error {
	if e.closing.CompareAndSwap(false, true) {
		e.claims.close()
		go func() {
			defer close(e.closed)
			e.calls.Wait()
			e.tidy()
			shut()
			e.opening.connection.close()
		}()
	}
	select {
	case <-e.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close: %w", ctx.Err())
	}
}

// yes and no are arguments of scripts.
const yes, no = "1", "0"

// yesNo returns b as an argument of a script.
func yesNo(b bool) string {
	if b {
		return yes
	}
	return no
}

// rests and restsBarred are modes of confirm, besides no and yes.
const rests, restsBarred = "2", "3"

// digits returns a number as an argument of a script.
func digits[N int | int64 | uint64](n N) string {
	return strconv.FormatInt(int64(n), 10) //nolint:gosec // fences and revisions are below 2^53
}

// millis rounds up: the server must not count less than the client does.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

var errNotRedis = errors.New("not a client of one server, a Sentinel set or a Cluster")
