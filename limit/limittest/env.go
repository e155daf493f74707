package limittest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
)

// env is the environment of a case. It opens processes.
type env struct {
	*suite.Env
	h      Harness
	prefix string // of the case's keys, so that cases on one backend do not share keys
}

// key returns a key that no other case uses.
func (e *env) key(name string) string { return e.prefix + ":" + name }

// ticket returns a ticket in the format of the front.
func ticket() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// process is one process on the backend: a driver alone, and a Limiter over
// another one.
type process struct {
	*limit.Limiter
	env    *env
	direct driver.Driver
	under  *counted // of the Limiter
	ticket string   // of direct
	seq    uint64
	events *events // of the Limiter
}

// process opens another process.
func (e *env) process(configure ...func(*limit.Config)) *process {
	p := &process{env: e, direct: e.driver(), ticket: ticket(), events: new(events)}
	p.under = &counted{Driver: e.driver()}
	config := limit.Config{Observer: p.events}
	for _, f := range configure {
		f(&config)
	}
	l, err := limit.New(p.under, config)
	e.Must(err, "new Limiter")
	p.Limiter = l
	e.AtEnd(func() { _ = l.Close(context.Background()) })
	return p
}

// events is an Observer that records the events.
type events struct {
	mu  sync.Mutex // guards all
	all []limit.Event
}

// Observe implements [limit.Observer].
func (o *events) Observe(e limit.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, e)
}

// eventsOf returns the recorded events of a type.
func eventsOf[E limit.Event](p *process) (found []E) {
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	for _, e := range p.events.all {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// driver opens a driver alone.
func (e *env) driver() driver.Driver {
	d, err := e.h.Open()
	e.Must(err, "open the driver")
	e.AtEnd(func() { _ = closeBounded(d) })
	return d
}

func closeBounded(d driver.Driver) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return d.Close(ctx)
}

// per returns the rate of n units in a number of Units.
func (e *env) per(n int, units float64) limit.Rate {
	return limit.Rate{N: n, Per: e.Units(units).Round(time.Microsecond)}
}

func limitOf(rates ...limit.Rate) limit.Limit { return limit.Limit{Rates: rates} }

// allow calls Allow.
func (p *process) allow(key string, m limit.Limit, opts ...limit.Option) limit.Result {
	ctx, cancel := p.env.Bounded()
	defer cancel()
	r, err := p.Allow(ctx, key, m, opts...)
	p.env.Must(err, "Allow %q", key)
	return r
}

// wait calls Wait.
func (p *process) wait(key string, m limit.Limit, opts ...limit.Option) *limit.Permit {
	permit, err := p.Wait(p.env.Ctx, key, m, opts...)
	p.env.Must(err, "Wait for %q", key)
	return permit
}

// take asks the driver without a ticket.
func (p *process) take(key string, cost int, rates ...limit.Rate) driver.Answer {
	return p.ask(driver.Request{Key: key, Rates: rates, Cost: cost})
}

// queue asks the driver with the ticket of the process. It is a new request
// unless again is set.
func (p *process) queue(key string, cost int, again bool, rates ...limit.Rate) driver.Answer {
	return p.ask(p.request(key, cost, again, rates...))
}

func (p *process) request(key string, cost int, again bool, rates ...limit.Rate) driver.Request {
	if !again {
		p.seq++
	}
	return driver.Request{Key: key, Rates: rates, Cost: cost, Ticket: p.ticket, Seq: p.seq, MaxWait: -1, Waiter: driver.Holder{Host: "host", PID: 7}}
}

func (p *process) ask(r driver.Request) driver.Answer {
	ctx, cancel := p.env.Bounded()
	defer cancel()
	a, err := p.direct.Take(ctx, r)
	p.env.Must(err, "the driver's Take of %q", r.Key)
	return a
}

// granted takes units and expects that they are granted.
func (p *process) granted(key string, cost int, rates ...limit.Rate) driver.Answer {
	a := p.take(key, cost, rates...)
	p.env.Want(a.Granted, "%d units of %v were refused: %+v", cost, rates, a)
	return a
}

// refused takes units and expects a refusal with a wait of more than low and at
// most high units of time.
func (p *process) refused(key string, low, high float64, cost int, rates ...limit.Rate) driver.Answer {
	a := p.take(key, cost, rates...)
	p.env.Want(!a.Granted, "%d units of %v were granted", cost, rates)
	p.env.Want(a.Wait > p.env.Units(low) && a.Wait <= p.env.Units(high), "the wait is %v, want %v to %v", a.Wait, p.env.Units(low), p.env.Units(high))
	return a
}

// giveBack settles a grant at the driver with no used units.
func (p *process) giveBack(key string, at time.Time, cost int, rates ...limit.Rate) {
	ctx, cancel := p.env.Bounded()
	defer cancel()
	err := p.direct.Settle(ctx, driver.Settlement{Key: key, Rates: rates, At: at, Cost: cost})
	p.env.Must(err, "the driver's Settle of %q", key)
}

// used returns the units in the windows of the rates.
func (p *process) used(key string, rates ...limit.Rate) []int {
	ctx, cancel := p.env.Bounded()
	defer cancel()
	s, err := p.direct.Inspect(ctx, key, rates)
	p.env.Must(err, "the driver's Inspect of %q", key)
	var used []int
	for _, r := range s.Rates {
		used = append(used, r.Used)
	}
	return used
}

// ledger records grants from several goroutines.
type ledger struct {
	mu     sync.Mutex // guards the fields below
	exact  []Grant    // on the backend's clock
	seen   []Grant    // on the clock of the suite
	shares map[int]int
	sum    int
}

func (l *ledger) add(who, units int, at, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exact = append(l.exact, Grant{at, at, units})
	l.seen = append(l.seen, Grant{sent, time.Now(), units})
	if l.shares == nil {
		l.shares = make(map[int]int)
	}
	l.shares[who] += units
	l.sum += units
}

func (l *ledger) units() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum
}

// check fails the case if an interval holds more than a rate allows, on the
// backend's clock or certainly on the suite's.
func (l *ledger) check(e *env, rates ...limit.Rate) {
	for _, r := range rates {
		units, at := Worst(l.exact, r.Per)
		e.Want(units <= r.N, "%d units within %v from %v on the backend's clock, want at most %d", units, r.Per, at, r.N)
		// The two clocks may run at rates that differ a little.
		units, at = Worst(l.seen, r.Per-r.Per/1000)
		e.Want(units <= r.N, "%d units within %v from %v on the suite's clock, want at most %d", units, r.Per, at, r.N)
	}
}

// counted counts the calls of a driver, and can make it fail.
type counted struct {
	driver.Driver
	mu    sync.Mutex // guards the fields below
	calls int
	fail  error
	lost  error  // of each Take, after it was executed
	onWay func() // called when the next Take was executed, before its answer arrives
}

func (c *counted) called() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	return c.fail
}

// count returns the number of calls since the last count.
func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.calls
	c.calls = 0
	return n
}

// breaks makes all calls fail with err; nil ends that.
func (c *counted) breaks(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = err
}

// beforeAnswer calls f when the next Take was executed, before its answer arrives.
func (c *counted) beforeAnswer(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWay = f
}

// mute replaces the answer of every Take by err; nil ends that.
func (c *counted) mute(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = err
}

func (c *counted) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	if err := c.called(); err != nil {
		return driver.Answer{}, err
	}
	a, err := c.Driver.Take(ctx, r)
	c.mu.Lock()
	onWay := c.onWay
	c.onWay = nil
	c.mu.Unlock()
	if onWay != nil {
		onWay()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return a, cmp.Or(c.lost, err)
}

func (c *counted) Settle(ctx context.Context, s driver.Settlement) error {
	if err := c.called(); err != nil {
		return err
	}
	return c.Driver.Settle(ctx, s)
}

func (c *counted) Withdraw(ctx context.Context, r driver.Request) error {
	if err := c.called(); err != nil {
		return err
	}
	return c.Driver.Withdraw(ctx, r)
}
