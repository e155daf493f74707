package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// question is a request to the hub, with room for its answer. It belongs to the
// reader from the moment when the reader takes it out of Lock.asked until the
// reader sends on answered. At all other times it belongs to the caller.
type question struct {
	answered chan error
	timeout  *time.Timer
	until    time.Time // when timeout fires; zero without a limit
	excused  bool      // timeout was extended once

	since    time.Time // of driver.Now, before the question was last sent
	key      string
	claim    *claim        // the claim to grant or to queue
	over     *claim        // the claim to release
	rest     time.Duration // how long the key of over stays taken
	rev      uint64        // of the release that keeps it taken
	grants   []driver.Grant
	renewals []driver.Renewal
	states   []driver.State
	run      *driver.Run
	count    int
	again    bool // the question was sent before, and may have been executed
}

var questions = sync.Pool{New: func() any {
	q := &question{answered: make(chan error, 1), timeout: time.NewTimer(time.Hour)}
	q.timeout.Stop()
	return q
}}

func newQuestion(key string) *question {
	q := questions.Get().(*question)
	q.key = key
	return q
}

// wait bounds the wait for the answer.
func (q *question) wait(d time.Duration) { q.until = time.Now().Add(d) }

// startTimer starts the timeout. The goroutine is about to wait: most answers are
// read before.
func (q *question) startTimer() {
	if !q.until.IsZero() {
		q.timeout.Reset(time.Until(q.until))
	}
}

// excuse reports whether the timeout has fired late because this process was stopped
// or had no processor. The answer may then have arrived unread, so the silence is
// not the hub's, and excuse starts the timer again, once.
func (q *question) excuse() bool {
	if q.excused || time.Since(q.until) < lateTimer {
		return false
	}
	q.excused = true
	q.wait(driver.CallTimeout)
	q.startTimer()
	return true
}

// lateTimer is how late a timer fires if its process must have stood still.
const lateTimer = 100 * time.Millisecond

// free returns q for reuse.
func (q *question) free() {
	q.timeout.Stop()
	*q = question{answered: q.answered, timeout: q.timeout}
	questions.Put(q)
}

// errHubGone is the error of a question that must be repeated because its hub
// has ended.
var errHubGone = errors.New("the hub is gone")

// noAnswer returns the error of a question whose timeout has fired.
func (x *Lock) noAnswer() error {
	s, why := x.node.session()
	if why != nil {
		return fmt.Errorf("there is no hub: %w", why)
	}
	return fmt.Errorf("%s has not answered in time (is it stopped?)", s.hub)
}

// attempt is one attempt to send a question.
type attempt struct {
	line    *protocol.Line
	number  uint64
	changed <-chan struct{} // closed when the line changes
}

// ask sends the question that frame builds and waits for its answer, until ctx
// ends or until the timeout of q, if any, fires. If the hub ends, ask repeats
// the question at the next hub: every question can be repeated.
func (x *Lock) ask(ctx context.Context, q *question, frame func(number uint64) *protocol.Frame) error {
	for {
		t, err := x.enlist(q)
		if err != nil {
			return err
		}
		if t.line != nil {
			if err := x.put(ctx, q, t, frame(t.number)); !errors.Is(err, errHubGone) {
				return err
			}
			q.again = true
		}
		q.startTimer()
		select {
		case <-t.changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-q.timeout.C:
			if !q.excuse() {
				return x.noAnswer()
			}
		}
	}
}

// enlist gives q a number if there is a hub. It returns an error if no hub will
// come.
func (x *Lock) enlist(q *question) (attempt, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.why != nil {
		return attempt{}, x.why
	}
	if x.line == nil {
		return attempt{changed: x.changed}, nil
	}
	x.last++
	x.asked[x.last] = q
	// An answer counts from here: it cannot come from an earlier hub any more.
	q.since = driver.Now()
	if q.claim != nil {
		q.claim.asked = q.since
	}
	return attempt{x.line, x.last, x.changed}, nil
}

// put sends the question and waits for its answer.
func (x *Lock) put(ctx context.Context, q *question, t attempt, f *protocol.Frame) error {
	if err := t.line.Send(f); err != nil {
		return x.withdraw(q, t, asGone(err))
	}
	t.line.Lead(x.read, q.answered)
	if len(q.answered) > 0 {
		return <-q.answered
	}
	q.startTimer()
	for {
		select {
		case err := <-q.answered:
			return err
		case <-ctx.Done():
			return x.withdraw(q, t, ctx.Err())
		case <-q.timeout.C:
			if !q.excuse() {
				return x.withdraw(q, t, x.noAnswer())
			}
		}
	}
}

// asGone converts the end of a line to errHubGone. It keeps the error of a
// frame that is too large.
func asGone(err error) error {
	if _, oversized := errors.AsType[*protocol.FrameError](err); oversized {
		return err
	}
	return errHubGone
}

// withdraw gives up the question because of err. If the answer has arrived at
// the same moment, the answer counts.
func (x *Lock) withdraw(q *question, t attempt, err error) error {
	x.mu.Lock()
	_, mine := x.asked[t.number]
	delete(x.asked, t.number)
	x.mu.Unlock()
	if !mine {
		return <-q.answered
	}
	return err
}

// answer handles the hub's answer to a question that may have been given up.
func (x *Lock) answer(d *protocol.Decoder) {
	number, o := d.Uint(), d.Byte()
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.asked[number]
	switch {
	case q == nil:
	case o == protocol.VerdictMore:
		q.states = protocol.ReadStates(d, q.states)
	default:
		delete(x.asked, number)
		if x.single++; len(x.asked) > 0 {
			x.single = 0
		}
		err := x.take(q, o, d)
		if q.over != nil {
			x.conclude(q, err)
		}
		q.answered <- err
	}
}

// calm is the number of answers after which this process is taken to ask one
// question after the other.
const calm = 8

// callsOneByOne reports whether the hub sends nothing but answers, and only one
// at a time. Then the caller reads its answer itself: no other goroutine waits
// for a frame.
func (x *Lock) callsOneByOne() bool { return x.single >= calm }

// readAnswer handles a frame that a caller has read.
func (x *Lock) readAnswer(t protocol.Type, body []byte) error {
	if t != protocol.LockAnswer {
		return protocol.ErrNotMine
	}
	d := protocol.NewDecoder(body)
	x.answer(&d)
	return d.Err()
}

// take stores the content of the answer. The caller holds x's lock.
func (x *Lock) take(q *question, o protocol.Verdict, d *protocol.Decoder) error {
	switch {
	case o == protocol.VerdictQueued && q.claim != nil:
		q.claim.enqueue(d)
	case o != protocol.VerdictDone:
		return protocol.ReadFailure(o, d, q.key)
	case q.claim != nil:
		x.have(q.claim, d)
	case q.grants != nil:
		x.takeRenewals(q, d)
	case q.run != nil:
		var err error
		*q.run, err = protocol.ReadRun(d)
		return err
	case d.Left() > 0:
		q.count = int(d.Uint())
	}
	return d.Err()
}

// takeRenewals stores the renewals of an answer. The caller holds x's lock.
func (x *Lock) takeRenewals(q *question, d *protocol.Decoder) {
	for i := range q.grants {
		g, r := &q.grants[i], &q.renewals[i]
		o := d.Byte()
		switch {
		case o != protocol.VerdictDone:
			r.Err = protocol.ReadError(o, d, g.Key)
		case g.NoRenew:
			r.Deadline = x.clock.Time(d.Int())
		default:
			r.Deadline = earlier(x.clock.Time(d.Int()), driver.Deadline(q.since, g.TTL))
		}
		x.renewed(g, r)
	}
}

// takeOver is the pause between two attempts of whenOpen.
const takeOver = 10 * time.Millisecond

// whenOpen repeats the call ask while the hub does not know all leases and runs of
// an earlier hub yet.
func whenOpen(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !errors.Is(err, table.ErrShut) {
			return err
		}
		select {
		case <-time.After(takeOver):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}
