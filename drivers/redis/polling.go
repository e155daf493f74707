package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/lock/driver"
)

// polling is the engine that obtains with redislock and waits by polling. It
// shares everything after the grant with the other engine: a grant has the same
// form, so the same scripts renew and release it.
type polling struct {
	*engine
	obtainer *redislock.Client
}

var _ driver.Driver = (*polling)(nil)

// Pauses between two tries.
const (
	pollFirst = 8 * time.Millisecond
	pollMax   = 256 * time.Millisecond
)

func (o opening) openPolling(ctx context.Context, l look) (driver.Driver, error) {
	p := &polling{engine: o.engine(l, EngineRedislock)}
	p.obtainer = redislock.New(scripter{p.caller})
	o.connection.backend.onReconnect(p.claims.reconnected, p.claims.disconnected)
	p.info.Lacks = []driver.Lack{
		{Rule: "L7", Why: "no order across processes: the first one that finds the lock free gets it; FIFO is refused"},
		{Rule: "L9", Why: "waiting polls, after pauses of 4 to 256 ms"},
		{Rule: "L10", Why: "a process has no ticket: it polls for each key that it waits for"},
		{Rule: "L15", Why: "redislock has no pools; Slots above 1 are refused, and slots with states (P1 to P11)"},
		{Rule: "O1", Why: "the engine redislock records no runs; Once and Every are refused"},
	}
	p.info.Warnings = append(p.info.Warnings,
		"redislock bars no tokens: a copy of an acquire that arrives after its release locks the key until its TTL (part of L6)",
		"a forced lease ends at its next renewal: there is no push")
	if err := p.rehearse(ctx); err != nil {
		return nil, explain(err, o)
	}
	return p, nil
}

// rehearse obtains and releases a key of its own.
func (p *polling) rehearse(ctx context.Context) error {
	r := driver.Request{Key: "rehearsal:" + newID(), Token: newID(), TTL: rehearsal, Slots: 1, Fences: 1}
	defer p.sweepUp(r.Key)
	if err := p.mayLoad(ctx, p.layout.holder(r.Key)); err != nil {
		return err
	}
	g, err := p.Acquire(ctx, r)
	if err != nil {
		return err
	}
	if err := p.Renew(ctx, []driver.Grant{g})[0].Err; err != nil {
		return err
	}
	return p.Release(ctx, g)
}

// Acquire implements [driver.Driver].
func (p *polling) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	switch {
	case r.Slots > 1:
		return driver.Grant{}, fmt.Errorf("%w: Slots(%d) with the engine %s", driver.ErrUnsupported, r.Slots, EngineRedislock)
	case r.Pool != nil:
		return driver.Grant{}, fmt.Errorf("%w: a pool whose slots have states with the engine %s", driver.ErrUnsupported, EngineRedislock)
	case r.FIFO:
		return driver.Grant{}, fmt.Errorf("%w: FIFO with the engine %s", driver.ErrUnsupported, EngineRedislock)
	case ctx.Err() != nil:
		return driver.Grant{}, ctx.Err()
	case p.claims.isBarred(r.Token): // redislock would obtain it for a moment
		return driver.Grant{}, &driver.NotAcquiredError{Key: r.Key}
	}
	if err := p.begin(); err != nil {
		return driver.Grant{}, err
	}
	defer p.calls.Done()
	if g, err := p.again(ctx, r); err == nil {
		return g, nil
	}
	c := &claim{name: p.layout.holder(r.Key), r: r, tail: tail("", r.Holder), loose: true}
	p.claims.add(c)
	g, err := p.poll(ctx, c)
	switch {
	case err == nil:
		p.claims.held(c, g.Deadline)
	case errors.Is(err, driver.ErrNotAcquired):
		p.claims.remove(r.Token)
	default: // it may have been obtained
		p.claims.abandon(c)
	}
	return g, err
}

// Release implements [driver.Driver].
func (p *polling) Release(ctx context.Context, g driver.Grant) error {
	p.claims.bar(g.Token)
	return p.engine.Release(ctx, g)
}

// again answers a repeated request for a token that this process holds. A new
// attempt would give it another fence.
func (p *polling) again(ctx context.Context, r driver.Request) (driver.Grant, error) {
	c := p.claims.find(r.Token)
	if c == nil {
		return driver.Grant{}, driver.ErrLost
	}
	o, err := p.run(ctx, p.scripts.confirm.on(c.name, r.Token, digits(millis(r.TTL)), "0", no))
	if err != nil {
		return driver.Grant{}, err
	}
	a, err := check(o.reply, 1)
	if err != nil || a.sub(0).num(0) != 1 {
		return driver.Grant{}, driver.ErrLost
	}
	return c.grant(uint64(a.sub(0).num(1)), 0, r.Fences, driver.Deadline(o.sent, r.TTL)), nil //nolint:gosec // below 2^53
}

var errBusy = errors.New("busy")

// poll tries until the lock is granted or the wait is over. An outage ends it
// only if the server has not answered before.
func (p *polling) poll(ctx context.Context, c *claim) (driver.Grant, error) {
	start, reached := time.Now(), false
	for every := pollFirst; ; every = min(2*every, pollMax) {
		g, err := p.try(ctx, c)
		switch {
		case err == nil:
			g.Queued = reached
			return g, nil
		case errors.Is(err, errBusy):
			reached = true
		case ctx.Err() != nil || !reached || !errors.Is(err, driver.ErrUnavailable):
			return driver.Grant{}, err
		}
		left := every
		if c.r.Wait >= 0 {
			left = min(left, c.r.Wait-time.Since(start))
		}
		if left <= 0 {
			return driver.Grant{}, p.busy(ctx, c, err)
		}
		if err := p.pause(ctx, left/2+rand.N(left/2+1)); err != nil { //nolint:gosec // not a secret
			return driver.Grant{}, err
		}
	}
}

func (p *polling) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.claims.ending:
		return driver.ErrClosed
	}
}

// busy returns the error at the end of the wait. last is the result of the last
// attempt: without an answer, the key may have been obtained.
func (p *polling) busy(ctx context.Context, c *claim, last error) error {
	if !errors.Is(last, errBusy) {
		return last
	}
	e := &driver.NotAcquiredError{Key: c.r.Key}
	if s, err := p.Inspect(ctx, c.r.Key); err == nil {
		e.Holders = s.InTheWay()
	}
	return e
}

// obtained is the result of one attempt.
type obtained struct {
	grant driver.Grant
	err   error
}

// try makes one attempt, unless ctx ends before. It always waits for the result
// of a sent request: redislock bars no tokens, so a release now could arrive
// before the request.
func (p *polling) try(ctx context.Context, c *claim) (driver.Grant, error) {
	var decided atomic.Bool // whether the attempt or its waiter owns the outcome
	done := make(chan obtained, 1)
	p.calls.Go(func() {
		whole := context.WithoutCancel(ctx)
		g, err := p.obtain(whole, c)
		mine := !decided.CompareAndSwap(false, true)
		done <- obtained{g, err}
		if mine && !errors.Is(err, errBusy) {
			_, _ = p.run(whole, p.leaving(c.name, c.r.Token, true, no))
		}
	})
	select {
	case o := <-done:
		return o.grant, o.err
	case <-ctx.Done():
		if decided.CompareAndSwap(false, true) {
			return driver.Grant{}, ctx.Err()
		}
		o := <-done
		return o.grant, o.err
	}
}

// noBound is the deadline of an attempt of redislock, which without one gives up after
// the TTL. Each call has a bound of its own. L20
const noBound = time.Hour

// obtain obtains the key, and then its fences.
func (p *polling) obtain(ctx context.Context, c *claim) (driver.Grant, error) {
	sent := driver.Now()
	ctx, cancel := context.WithTimeout(ctx, noBound)
	defer cancel()
	_, err := p.obtainer.Obtain(ctx, c.name, time.Duration(millis(c.r.TTL))*time.Millisecond,
		&redislock.Options{Token: c.r.Token, Metadata: "{" + c.tail[1:]})
	switch {
	case errors.Is(err, redislock.ErrNotObtained):
		return driver.Grant{}, errBusy
	case err != nil:
		return driver.Grant{}, unavailable(err)
	}
	o, err := p.run(ctx, p.scripts.stamp.on(c.name, c.r.Token, digits(c.r.Fences), c.tail))
	if err != nil {
		return driver.Grant{}, err
	}
	a, err := check(o.reply, 1)
	if err != nil {
		return driver.Grant{}, err
	}
	switch a.num(0) {
	case statusBarred:
		return driver.Grant{}, &driver.NotAcquiredError{Key: c.r.Key}
	case statusBusy:
		return driver.Grant{}, errBusy
	}
	g := c.grant(uint64(a.num(1)), 0, c.r.Fences, driver.Deadline(sent, c.r.TTL)) //nolint:gosec // below 2^53
	return g, nil
}

// Close implements [driver.Driver].
func (p *polling) Close(ctx context.Context) error { return p.close(ctx, func() {}) }

// scripter executes the scripts of redislock: it classifies errors and retries,
// as every call of the driver does.
type scripter struct{ caller }

var _ redislock.RedisClient = scripter{}

// Eval runs a script by its source.
func (s scripter) Eval(ctx context.Context, source string, keys []string, args ...any) *goredis.Cmd {
	return s.script(ctx, eval, source, keys, args)
}

// EvalSha runs a script by its name.
func (s scripter) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *goredis.Cmd {
	return s.script(ctx, evalsha, sha, keys, args)
}

// EvalRO is Eval.
func (s scripter) EvalRO(ctx context.Context, source string, keys []string, args ...any) *goredis.Cmd {
	return s.Eval(ctx, source, keys, args...)
}

// EvalShaRO is EvalSha.
func (s scripter) EvalShaRO(ctx context.Context, sha string, keys []string, args ...any) *goredis.Cmd {
	return s.EvalSha(ctx, sha, keys, args...)
}

// ScriptExists is not needed by redislock.
func (s scripter) ScriptExists(ctx context.Context, _ ...string) *goredis.BoolSliceCmd {
	cmd := goredis.NewBoolSliceCmd(ctx)
	cmd.SetErr(driver.ErrUnsupported)
	return cmd
}

// ScriptLoad is not needed by redislock.
func (s scripter) ScriptLoad(ctx context.Context, _ string) *goredis.StringCmd {
	cmd := goredis.NewStringCmd(ctx)
	cmd.SetErr(driver.ErrUnsupported)
	return cmd
}

func (s scripter) script(ctx context.Context, name, source string, keys []string, args []any) *goredis.Cmd {
	all := append([]string{name, source, digits(len(keys))}, keys...)
	for _, a := range args {
		all = append(all, fmt.Sprint(a)) // redislock has strings and numbers
	}
	out := goredis.NewCmd(ctx)
	o, err := s.send(ctx, "obtain", keys[0], func(bool) []string { return all })
	switch {
	case err != nil:
		out.SetErr(err)
	case o.reply == nil:
		out.SetErr(goredis.Nil)
	default:
		out.SetVal(o.reply)
	}
	return out
}
