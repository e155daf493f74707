package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/limit/driver"
	lock "github.com/megaframework/mega/lock/driver"
)

// limits is the driver of limits. It has no goroutine and no state of its own:
// each call is one script, or two for [limits.Inspect] without rates.
type limits struct {
	caller
	connection *connection
	template   template
	scripts    *limitScripts
	info       driver.Info
	side       chan struct{} // room for one List
	closing    atomic.Bool
	closed     chan struct{} // closed when nothing is left
}

var _ driver.Driver = (*limits)(nil)

// OpenLimit connects to Redis, checks it, and returns a driver of limits, as
// [OpenLock] does for locks. Config.Engine has no effect. The caller closes the
// driver.
func OpenLimit(ctx context.Context, c Config) (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c = c.withDefaults()
	o, err := prepare(c)
	if err == nil {
		l, opened := o.openLimit(ctx)
		if opened == nil {
			return l, nil
		}
		o.connection.close()
		err = opened
	}
	return nil, fmt.Errorf("open redis limit%s: %w", where(c), limitError(err))
}

func (o opening) openLimit(ctx context.Context) (*limits, error) {
	seen := look{client: o.connection.client, peers: o.peers, losses: lossesOfLimits()}
	if err := seen.at(ctx); err != nil {
		return nil, err
	}
	l := &limits{
		caller:     caller{o.connection.backend},
		connection: o.connection,
		template:   o.template,
		scripts:    newLimitScripts(o.config.edit),
		info:       driver.Info{Name: "redis", Scope: driver.Fleet, Format: limitFormat, Warnings: seen.warnings},
		side:       make(chan struct{}, 1),
		closed:     make(chan struct{}),
	}
	if l.backend.repeats() {
		l.info.Lacks = []driver.Lack{{Rule: "W3", Why: "the client retries commands: a request without a ticket may be granted to a copy whose answer is lost, and the client's next copy is refused; set MaxRetries to -1, because the driver retries"}}
	}
	if err := l.rehearse(ctx); err != nil {
		return nil, explain(err, o)
	}
	return l, nil
}

// rehearse runs the scripts on a scratch key, so that a missing permission or command
// shows at boot.
func (l *limits) rehearse(ctx context.Context) error {
	r := driver.Request{Key: "rehearsal:" + newID(), Rates: []driver.Rate{{N: 1, Per: time.Second}}, Cost: 1, Ticket: newID(), Seq: 1, MaxWait: -1}
	defer l.sweepUp(r)
	if err := l.mayLoad(ctx, l.template.limitKeys(r.Key, r.Rates)[0], l.scripts.all()...); err != nil {
		return err
	}
	a, err := l.Take(ctx, r)
	if err != nil {
		return err
	}
	if !a.Granted {
		return unavailable(errors.New("the first request of a key was refused"))
	}
	_, inspected := l.Inspect(ctx, r.Key, nil)
	return errors.Join(inspected, l.Withdraw(ctx, r), l.Reset(ctx, r.Key))
}

// sweepUp removes the data of the rehearsal; if that fails, the data expires.
func (l *limits) sweepUp(r driver.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	_ = l.connection.client.Del(ctx, l.template.limitKeys(r.Key, r.Rates)...).Err()
}

// Info implements [driver.Driver].
func (l *limits) Info() driver.Info {
	info := l.info
	info.Warnings, info.Lacks = slices.Clone(info.Warnings), slices.Clone(info.Lacks)
	return info
}

// execute calls a script whose answer is an array of at least n, or a number if n
// is 0.
func (l *limits) execute(ctx context.Context, r request, n int) (answer, outcome, error) {
	if l.closing.Load() {
		return nil, outcome{}, driver.ErrClosed
	}
	o, err := l.run(ctx, r)
	var a answer
	if err == nil && n > 0 {
		a, err = check(o.reply, n)
	}
	return a, o, limitError(err)
}

// limitError converts an error of a call to one of the boundary of limits.
func limitError(err error) error {
	if errors.Is(err, lock.ErrClosed) {
		return driver.ErrClosed
	}
	for from, to := range map[*lock.Error]*driver.Error{lock.ErrUnavailable: driver.ErrUnavailable, lock.ErrInvalid: driver.ErrInvalid} {
		if errors.Is(err, from) {
			return &renamed{to: to, from: from, err: err}
		}
	}
	return err
}

// renamed is err with another of the errors of a boundary.
type renamed struct {
	to, from, err error
}

func (r *renamed) Error() string {
	prefix := r.to.Error() + ": " // an error that was renamed before has it already
	return prefix + strings.TrimPrefix(strings.TrimPrefix(r.err.Error(), r.from.Error()+": "), prefix)
}

// Unwrap returns the other error, and the cause that unavailable or invalid has wrapped
// beside the own one.
func (r *renamed) Unwrap() []error {
	all := []error{r.to}
	if e, ok := r.err.(interface{ Unwrap() []error }); ok {
		all = append(all, e.Unwrap()[1:]...)
	}
	return all
}

// Take implements [driver.Driver]. A request without a ticket may be granted to a
// copy whose answer is lost. Its repetition may then be refused because of these
// units: the outcome is unknown. W9 The refusal of a request with a ticket has removed
// the ticket, so that a late copy, if there may be one, has to be barred. W6
func (l *limits) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	a, o, err := l.execute(ctx, l.onLimit(l.scripts.take, r.Key, r.Rates, takeArgs(&r)...), 1)
	if err != nil {
		return driver.Answer{}, err
	}
	if r.Ticket == "" && r.Cost > 0 && o.again && a.num(0) == 0 {
		return driver.Answer{}, fmt.Errorf("%w: take: the answer to the first request was lost", driver.ErrUnavailable)
	}
	out := decodeAnswer(a)
	if r.Ticket != "" && r.Cost > 0 && l.loose(o) && !out.Granted && out.Again == 0 {
		_ = l.Withdraw(ctx, r) // if it fails, the copy counts as consumed
	}
	return out, nil
}

func takeArgs(r *driver.Request) []string {
	cost, smooth, patience, waiter := digits(r.Cost), yesNo(r.Smooth), int64(-1), ""
	if r.Ticket == "" {
		return []string{cost, smooth, "", no, no}
	}
	if r.MaxWait >= 0 {
		patience = r.MaxWait.Microseconds()
	}
	if text, err := json.Marshal(r.Waiter); err == nil {
		waiter = string(text)
	}
	return []string{cost, smooth, r.Ticket, digits(r.Seq), digits(patience), waiter}
}

func decodeAnswer(a answer) driver.Answer {
	out := driver.Answer{
		Granted: a.num(0) == 1, Wait: limitTime(a.num(2)),
		By: int(a.num(4)), Remaining: int(a.num(5)), Reset: limitTime(a.num(6)), Full: a.num(7) == 1,
	}
	if a.num(3) != 0 {
		out.Again = driver.Again(out.Wait)
	}
	if at := a.num(1); at != 0 {
		out.At = time.UnixMicro(at)
	}
	out.Paused = decodePause(a.num(8), a.text(9))
	return out
}

func limitTime(us int64) time.Duration {
	return time.Duration(min(us, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

func decodePause(left int64, text string) *driver.Pause {
	if left <= 0 {
		return nil
	}
	p := &driver.Pause{}
	_ = json.Unmarshal([]byte(text), p) // for display
	p.Left = limitTime(left)
	return p
}

// Withdraw implements [driver.Driver].
func (l *limits) Withdraw(ctx context.Context, r driver.Request) error {
	_, _, err := l.execute(ctx, l.onLimit(l.scripts.withdraw, r.Key, r.Rates, r.Ticket, digits(r.Seq)), 0)
	return err
}

// Settle implements [driver.Driver].
func (l *limits) Settle(ctx context.Context, s driver.Settlement) error {
	if s.Cost == s.Actual {
		return nil
	}
	_, _, err := l.execute(ctx, l.onLimit(l.scripts.settle, s.Key, s.Rates, newID(), digits(s.Cost-s.Actual), digits(s.At.UnixMicro())), 0)
	return err
}

// Pause implements [driver.Driver].
func (l *limits) Pause(ctx context.Context, key string, p driver.Pause) error {
	left := p.Left.Microseconds()
	p.Left = 0
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	_, _, err = l.execute(ctx, l.onLimit(l.scripts.pause, key, nil, newID(), digits(left), string(text)), 0)
	return err
}

// Reset implements [driver.Driver].
func (l *limits) Reset(ctx context.Context, key string) error {
	_, _, err := l.execute(ctx, l.onLimit(l.scripts.reset, key, nil, newID()), 0)
	return err
}

// Close implements [driver.Driver]. Calls that are under way end as they would
// otherwise, or with the connections.
func (l *limits) Close(ctx context.Context) error {
	if l.closing.CompareAndSwap(false, true) {
		go func() {
			defer close(l.closed)
			l.connection.close()
		}()
	}
	select {
	case <-l.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close: %w", ctx.Err())
	}
}
