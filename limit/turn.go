package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/limit/driver"
)

// turn is one call of Wait.
type turn struct {
	limiter  *Limiter
	call     *call
	request  driver.Request
	began    instant
	deadline instant // 0 for none
	over     bool    // no longer waiting

	local  bool // refused by what the process remembered
	place  *waiting
	joined instant       // when the call joined its queue
	fault  error         // why the backend has not answered the calls ahead; cleared by ask
	until  instant       // with a fault: the end of the second in which the backend may still answer
	asked  bool          // the backend, or the share of this process, may have a ticket
	sent   bool          // the backend may have it
	lost   bool          // a request had no answer: a copy of it may still arrive
	unsure bool          // the outcome of the last request is not known, or a copy has to be barred
	last   driver.Answer // the last one
	at     instant       // before last was asked for
}

func (l *Limiter) newTurn(ctx context.Context, c *call) *turn {
	t := &turn{limiter: l, call: c, request: c.request(), began: l.now()}
	if c.maxWait != forever {
		t.deadline = t.began.add(c.maxWait)
	}
	if at, ok := ctx.Deadline(); ok {
		if end := t.began.add(time.Until(at)); t.deadline == 0 || end < t.deadline {
			t.deadline = end
		}
	}
	t.request.Ticket = l.ticket
	return t
}

// end ends the wait of the call. A second end changes nothing.
func (t *turn) end() {
	if t.over {
		return
	}
	t.over = true
	t.limiter.counters.waiting.Add(-1)
	t.limiter.group.Done()
}

// permit takes a slot, waits for the rates, and gives the slot back if they
// refuse (W16).
func (t *turn) permit(ctx context.Context) (*Permit, error) {
	if err := t.known(t.began); err != nil {
		return nil, err
	}
	s, err := t.slot(ctx)
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() {
		if !kept { // also where Identify or the context panics
			_ = s.release()
		}
	}()
	p, err := t.units(ctx, s)
	kept = err == nil
	return p, err
}

// with takes a slot, waits for the rates, and runs fn if they allow the call. It
// reports whether they do.
func (t *turn) with(ctx context.Context, fn func(context.Context, *Permit) error) (allowed bool, err error) {
	refusal := t.known(t.began)
	if refusal == nil {
		err = t.inSlot(ctx, func(work context.Context, s slot) error {
			var p *Permit
			p, refusal = t.units(ctx, s)
			if allowed = refusal == nil; !allowed {
				return nil
			}
			t.end()
			return fn(work, p)
		})
	}
	if allowed {
		return true, err
	}
	return false, cmp.Or(refusal, err)
}

// units waits for the rates, and returns the permit of a call that has s.
func (t *turn) units(ctx context.Context, s slot) (*Permit, error) {
	a, degraded, err := t.wait(ctx)
	if err != nil {
		return nil, err
	}
	l, c := t.limiter, t.call
	waited := l.now().sub(t.began)
	l.counters.wait.Add(waited)
	l.granted(c, waited, degraded)
	return &Permit{limiter: l, key: c.key, rates: c.rates, cost: c.cost, at: a.At, degraded: degraded, slot: s}, nil
}

// known refuses a call of which the process knows at now that it is too late (W12).
func (t *turn) known(now instant) error {
	r, paused, known := t.limiter.refusals.find(t.call, now)
	if !known || t.deadline == 0 || now.add(r.RetryAfter) <= t.deadline {
		return nil
	}
	t.limiter.counters.local.Add(1)
	t.local = true
	return &LimitedError{Key: t.call.key, RetryAfter: r.RetryAfter, Waited: now.sub(t.began), Rate: r.By, Paused: paused}
}

// wait waits for the turn of the call in this process, and then for its ticket.
func (t *turn) wait(ctx context.Context) (driver.Answer, bool, error) {
	l := t.limiter
	t.place, t.joined = l.queues.join(t.call.key), l.now()
	decided := false // by the backend, which has no ticket then
	defer func() {
		if decided {
			l.queues.leave(t.place)
			return
		}
		t.giveUp() // also where Identify or the context panics
	}()
	if err := t.first(ctx); err != nil {
		if errors.Is(err, ErrUnavailable) && t.call.limit.Outage != Closed {
			return t.alone(ctx, err)
		}
		return driver.Answer{}, false, err
	}
	if err := t.known(l.now()); err != nil { // by the answer to a call ahead
		return driver.Answer{}, false, err
	}
	t.request.Seq = l.seq.Add(1)
	for {
		asked, epoch := l.now(), l.refusals.epoch.Load()
		a, degraded, err := t.ask(ctx)
		switch {
		case err != nil:
			if errors.Is(err, ErrUnavailable) {
				l.queues.fail(t.place, err, asked)
			}
			return a, false, err
		case a.Granted:
			decided = true
			return a, degraded, nil
		case a.Again == 0: // W6
			decided = degraded || !t.unsure
			if !degraded && !a.Full {
				l.refusals.add(t.call, t.call.result(&a, false), a.Paused, t.at, epoch)
			}
			return a, false, t.limited(nil)
		case t.request.MaxWait == 0 || !t.sleep(ctx, a.Again):
			return a, false, t.ended(ctx)
		}
	}
}

// alone decides about a call whose time is over while the backend does not answer the
// calls ahead because of cause, under Open and Share (W11).
func (t *turn) alone(ctx context.Context, cause error) (driver.Answer, bool, error) {
	sent := t.limiter.now()
	a, outage, err := t.limiter.decide(ctx, t.call, t.call.request(), cause)
	if err == nil && !a.Granted {
		err = &LimitedError{Key: t.call.key, RetryAfter: a.Wait, Waited: sent.sub(t.began), Rate: t.call.by(a.By)}
	}
	return a, outage != nil, err
}

// lateBound is how long a call whose time is over waits for the answers to the calls
// ahead, which no MaxWait bounds: the timeout of the backend, and some more, so that
// the report of an outage comes first.
const lateBound = driver.CallTimeout + driver.CallTimeout/10

// first waits until the call is the first of its queue. It returns ErrUnavailable if the
// backend does not answer the calls ahead: under Closed after a second, otherwise when
// the time of the call is over (W11).
func (t *turn) first(ctx context.Context) error {
	l := t.limiter
	select {
	case <-t.place.turn:
		return nil
	default:
	}
	at, _ := l.queues.notBefore(t.place)
	if _, fault := t.ahead(); t.deadline != 0 && fault == nil && at > t.deadline { // W6
		return t.limited(nil)
	}
	overdue := time.NewTimer(driver.CallTimeout)
	defer overdue.Stop()
	var end *time.Timer
	var late <-chan time.Time
	if t.deadline != 0 {
		end = time.NewTimer(t.deadline.sub(l.now()))
		defer end.Stop()
		late = end.C
	}
	for {
		select {
		case <-t.place.turn:
			t.until, t.fault = t.ahead()
			return nil
		case <-t.place.news:
		case <-overdue.C:
		case <-late:
			if t.place.late {
				return t.ended(ctx)
			}
			l.queues.overdue(t.place)
			end.Reset(lateBound)
		case <-ctx.Done():
			return t.ended(ctx)
		case <-l.group.Context().Done():
			return t.ended(ctx)
		}
		left, err := t.stillBehind(ctx)
		if err != nil {
			return err
		}
		if left > 0 {
			overdue.Reset(left)
		}
	}
}

// stillBehind decides about a call that is not yet the first of its queue. It returns
// the error that ends the call, or how long the call may wait for an answer to the
// calls ahead; 0 where nothing bounds that.
func (t *turn) stillBehind(ctx context.Context) (left time.Duration, err error) {
	l := t.limiter
	if t.place.late {
		_, fault := l.queues.fault(t.place)
		if err := cmp.Or(fault, l.health.lost()); err != nil {
			return 0, err // whether the limit is used up is not known
		}
		if at, _ := l.queues.notBefore(t.place); at != 0 { // the first call waits for units
			return 0, t.ended(ctx)
		}
	}
	until, fault := t.ahead()
	if fault == nil {
		return 0, nil
	}
	if left = until.sub(l.now()); left <= 0 {
		return 0, fault
	}
	return left, nil
}

// ahead returns why the backend has not answered the calls ahead, and until when the
// call waits for an answer. The error is nil if the backend has answered, and for a
// call that an outage does not end.
func (t *turn) ahead() (until instant, fault error) {
	if t.call.limit.Outage != Closed {
		return 0, nil
	}
	since, fault := t.limiter.queues.fault(t.place)
	return max(since, t.joined).add(driver.CallTimeout), fault
}

// askPause is the pause between requests that got no answer.
const askPause = 50 * time.Millisecond

// ask makes the request, and repeats it for at most a second while it gets no
// answer: a request with the same Ticket and Seq is the same request (W9).
func (t *turn) ask(ctx context.Context) (driver.Answer, bool, error) {
	l := t.limiter
	until, err := t.until, t.fault
	if t.fault = nil; err == nil {
		until = l.now().add(driver.CallTimeout)
		a, degraded, first := t.askOnce(ctx)
		if !errors.Is(first, ErrUnavailable) {
			return a, degraded, first
		}
		err = first
	}
	bounded, cancel := context.WithTimeout(ctx, until.sub(l.now())) // W11
	defer cancel()
	for group.Sleep(bounded, askPause) && l.group.Context().Err() == nil {
		a, degraded, again := t.askOnce(bounded)
		if !errors.Is(again, ErrUnavailable) && (bounded.Err() == nil || again == nil) {
			return a, degraded, again
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) || l.group.Context().Err() != nil {
		return driver.Answer{}, false, t.ended(ctx)
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // whether the limit is used up is not known
		err = fmt.Errorf("%w: %w", err, contextError(ctx))
	}
	return driver.Answer{}, false, err
}

func (t *turn) askOnce(ctx context.Context) (driver.Answer, bool, error) {
	l := t.limiter
	sent := l.now()
	t.request.MaxWait = forever
	if t.deadline != 0 {
		t.request.MaxWait = max(t.deadline.sub(sent), 0)
	}
	if t.request.Waiter.PID == 0 {
		t.request.Waiter = l.holder(ctx)
	}
	t.asked, t.unsure = true, true
	lost := l.lost(t.call)
	t.sent = t.sent || lost == nil
	a, outage, err := l.decide(ctx, t.call, t.request, lost)
	if err != nil {
		if !errors.Is(err, ErrUnavailable) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			err = t.ended(ctx) // else it is the timeout of a connection
		}
		t.lost = true
		return a, false, err
	}
	t.lost = t.lost || outage != nil
	t.unsure = outage != nil || t.lost && a.Again == 0
	t.last, t.at = a, sent
	if a.Again > 0 { // else the call is about to leave the queue
		l.queues.estimate(t.place, sent.add(a.Wait), a.Paused)
	}
	if outage == nil {
		l.queues.answered(t.place)
	} else {
		l.queues.fail(t.place, outage, sent)
	}
	return a, outage != nil, nil
}

// sleep waits until the request is to be repeated. It returns false when ctx or
// the Limiter has ended.
func (t *turn) sleep(ctx context.Context, d time.Duration) bool {
	if t.deadline != 0 { // one last request at the deadline
		d = min(d, max(t.deadline.sub(t.limiter.now()), 0))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.place.poked:
	case <-ctx.Done():
	case <-t.limiter.group.Context().Done():
	}
	return ctx.Err() == nil && t.limiter.group.Context().Err() == nil
}

// giveUp ends the place of a call that was not decided. The next call inherits the
// ticket; without a next one, or if the request may have been granted unseen,
// it is withdrawn (W7). The queue waits for that, and the caller does not, except
// when the Limiter closes.
func (t *turn) giveUp() {
	l := t.limiter
	if t.asked {
		l.refusals.clear(t.call.key) // of calls behind this ticket
	} else {
		t.request.Seq = l.seq.Add(1) // the call before may just have left it a ticket
	}
	if !t.unsure && !l.queues.alone(t.place) && !l.queues.leave(t.place) {
		return
	}
	if t.asked && !t.sent { // the next call waits for no backend that is lost (W11)
		l.shares.withdraw(&t.request)
		l.queues.leave(t.place)
		return
	}
	end := func(context.Context) {
		sent := l.now()
		ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
		defer cancel()
		l.shares.withdraw(&t.request)
		if err := l.driver.Withdraw(ctx, t.request); err != nil { // the ticket dies (W7), or the units count as consumed (W9)
			if err = l.classify(context.Background(), err, driver.CallTimeout); errors.Is(err, ErrUnavailable) {
				l.health.failed(ctx, err)
				l.queues.fail(t.place, err, sent)
			}
		}
		l.queues.leave(t.place)
	}
	if l.info.Scope == driver.Process || !l.group.Go(end) {
		end(nil)
	}
}

// ended returns the error of a call whose time, context or Limiter has ended.
func (t *turn) ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return t.endedBy(contextError(ctx))
	}
	return t.endedBy(nil)
}

func (t *turn) endedBy(cause error) error {
	if t.limiter.group.Context().Err() != nil {
		return ErrClosed
	}
	return t.limited(cause)
}

// limited returns the error of a call that is not allowed in time.
func (t *turn) limited(cause error) error {
	l := t.limiter
	now := l.now()
	e := &LimitedError{Key: t.call.key, Waited: now.sub(t.began), Err: cause}
	switch {
	case t.asked:
		e.RetryAfter = max(t.at.add(t.last.Wait).sub(now), 0)
		e.Full, e.Paused = t.last.Full, t.last.Paused
		if e.RetryAfter > 0 {
			e.Rate = t.call.by(t.last.By)
		}
	case t.place != nil:
		at, paused := l.queues.notBefore(t.place)
		e.RetryAfter, e.Paused = max(at.sub(now), 0), paused
	}
	return e
}

// failed counts and reports a call that was not allowed.
func (t *turn) failed(err error) {
	var limited LimitedError // zero for an outage
	if known, ok := errors.AsType[*LimitedError](err); ok {
		limited = *known
	} else if !errors.Is(err, ErrUnavailable) {
		return
	}
	t.limiter.counters.refused.Add(1)
	t.limiter.observe(Refused{Key: t.call.key, Cost: t.call.cost, By: limited.Rate, RetryAfter: limited.RetryAfter, Local: t.local, Err: err})
}
