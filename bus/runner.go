package bus

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/goroutine"
)

// runner is a goroutine that handles messages. It lives as long as there are
// any: an idle subscription has none.
type runner struct {
	current atomic.Pointer[delivery] // the handled message, for the watchdog
	self    atomic.Uintptr           // its goroutine
	busy    bool                     // it is counted in Sub.busy
	lane    *lane                    // which it has to give back, under OrderBy
	last    bool                     // the subscription is over with it
	seen    sighting                 // the watchdog's
}

// idleSpins is the number of times that an idle runner yields and checks the queue
// again before it ends: a start of another runner costs more than a few checks.
const idleSpins = 16

// spins reports whether idle runners yield before they end. A request from another
// process comes a round trip later at the earliest, and runners that yield until
// then delay the goroutine that reads it.
func (s *Sub) spins() bool {
	return s.kind == driver.Event || s.bus.info.Scope == driver.Process
}

// hire returns a runner that the caller has to start, if there is work for
// another one and none is idle. The caller holds s.mu.
func (s *Sub) hire() *runner {
	switch {
	case !s.hasWork():
		return nil
	case s.idle > 0:
		if !s.wanted.Load() {
			s.wanted.Store(true)
		}
		return nil
	case len(s.runners) >= s.concurrency:
		return nil
	}
	r := &runner{}
	s.runners = append(s.runners, r)
	return r
}

func (s *Sub) hasWork() bool {
	switch {
	case s.onGap != nil && s.isBarred():
		return false
	case s.gap.due != 0 || len(s.lanes.ready) > 0:
		return true
	case s.onGap != nil && s.queue.atMark():
		return s.lanes.len == 0
	}
	return s.queue.len > 0 && !s.lanes.sorting
}

// run is the goroutine of r.
func (s *Sub) run(r *runner) {
	s.bus.watch.arm()
	r.self.Store(goroutine.ID())
	returned := false
	defer func() {
		if !returned {
			s.replace(r)
		}
	}()
	if s.isSerial() {
		s.runSerial(r)
	} else {
		s.runMany(r)
	}
	returned = true
	if r.last {
		s.bury()
	}
}

// replace goes on where a runner was when a handler ended its goroutine. A
// panic that goes on to end the program passes here too.
func (s *Sub) replace(r *runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hasHandled(r)
	r.self.Store(0) // this goroutine ends, and a later one may get its number
	go s.run(r)
}

// isSerial reports whether one runner takes whole batches. This is the fast
// path, for subscriptions in which nothing else accesses the taken messages. A
// responder that stops refuses its queued requests at once.
func (s *Sub) isSerial() bool {
	return s.concurrency == 1 && s.orderBy == nil && s.onFull != DropOldest && s.onGap == nil && s.kind == driver.Event
}

func (s *Sub) runSerial(r *runner) {
	for s.refill(r) {
		for d := s.batch.next(); d != nil; d = s.batch.next() { // S5
			if d.mark {
				s.lost = merged(s.lost, d.msg.Missed)
				continue
			}
			if s.lost != 0 {
				d.msg.Missed, s.lost = s.lost, 0 // S10
			}
			s.start(r, d)
		}
	}
}

// refill takes the next batch. If there is none the runner is dismissed.
func (s *Sub) refill(r *runner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.batch.first != nil {
		return true // it was left by a runner that was replaced
	}
	for wanted := true; ; wanted = s.rest() {
		s.batch.fill(&s.queue)
		switch {
		case s.batch.len > 0:
			return true
		case !wanted || s.phase >= emptying:
			s.dismiss(r)
			return false
		}
	}
}

// rest yields to other goroutines for a while, and reports whether a runner is
// wanted again. The caller holds s.mu, which is given up meanwhile.
func (s *Sub) rest() (wanted bool) {
	if !s.spins() {
		return false
	}
	s.idle++
	s.mu.Unlock()
	for range idleSpins {
		if wanted = s.wanted.Load(); wanted {
			break
		}
		runtime.Gosched()
	}
	s.mu.Lock()
	s.idle--
	s.wanted.Store(false)
	return wanted
}

// dismiss lets the runner go. The caller holds s.mu.
func (s *Sub) dismiss(r *runner) {
	i := slices.Index(s.runners, r)
	s.runners = slices.Delete(s.runners, i, i+1)
	r.last = s.settle()
}

func (s *Sub) runMany(r *runner) {
	for {
		d, ok := s.next(r)
		if !ok {
			return
		}
		if d.mark {
			s.repair(r, d)
			continue
		}
		s.start(r, d)
	}
}

// next returns the next message for r, or the next call of OnGap. If there is
// nothing the runner is dismissed.
func (s *Sub) next(r *runner) (*delivery, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hasHandled(r)
	for wanted := true; ; wanted = s.rest() {
		if d := s.pick(r); d != nil {
			r.busy = true
			s.busy++
			if another := s.hire(); another != nil {
				go s.run(another)
			}
			return d, true
		}
		if !wanted || s.phase >= emptying {
			s.dismiss(r)
			return nil, false
		}
	}
}

// hasHandled counts what r has handled as done, and gives its lane back. The
// caller holds s.mu.
func (s *Sub) hasHandled(r *runner) {
	if r.busy {
		r.busy = false
		s.busy--
	}
	s.lanes.leave(r)
}

// pick returns the next message that may be handled now, or the mark for a call
// of OnGap, or nil. The caller holds s.mu, which is given up while OrderBy
// computes a key.
func (s *Sub) pick(r *runner) *delivery {
	for {
		if s.onGap != nil {
			s.reachMark()
			if s.isBarred() {
				return nil
			}
			if s.gap.due != 0 {
				return s.beginRepair()
			}
		}
		if d, again := s.pickMessage(r); !again {
			return d
		}
	}
}

// pickMessage returns the next message with its Missed, or nil, and whether to
// look again. The caller holds s.mu.
func (s *Sub) pickMessage(r *runner) (d *delivery, again bool) {
	if s.orderBy != nil {
		d, again = s.pickInOrder(r)
	} else {
		s.lost = merged(s.lost, s.queue.passMark())
		d = s.queue.pop()
	}
	if d != nil {
		d.msg.Missed = merged(d.msg.Missed, s.lost) // S10
		s.lost = 0
	}
	return d, again
}

// start calls the handler, unless the message is of no use any more.
func (s *Sub) start(r *runner, d *delivery) {
	switch {
	case s.stopped.Load() || s.ctx.Err() != nil: // the watch of ctx may not have stopped it yet
		s.discardOne(d)
		return
	case isExpired(d.deadline()): // S24
		s.expired.Add(1)
		s.keepLoss(d.msg.Missed)
		return
	}
	r.current.Store(d)
	s.invoke(d)
}

// discardOne counts a message that was taken out of the queue and is not handled,
// because the subscription was stopped.
func (s *Sub) discardOne(d *delivery) {
	s.bus.refuse(d, ErrTerminated)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded++
}

// keepLoss leaves what was lost before a message that is not handled to the
// next one.
func (s *Sub) keepLoss(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = merged(s.lost, n)
}

// invoke calls the handler, and survives it.
func (s *Sub) invoke(d *delivery) {
	var err error
	returned := false
	defer func() {
		if !returned {
			err = s.survive(recover()) // S15
		}
		s.finish(d, err)
	}()
	err = s.call(d)
	returned = true
}

// survive returns the error of a call that has panicked with value, or has ended
// its goroutine if value is nil. Under CrashOnPanic the panic goes on.
func (s *Sub) survive(value any) error {
	if value != nil && s.crash {
		panic(value)
	}
	return &PanicError{Value: value, Stack: debug.Stack()}
}

func (s *Sub) call(d *delivery) error {
	var ctx context.Context = d
	if extract := s.bus.config.Extract; extract != nil {
		ctx = extract(d, d.msg.Header)
	}
	if s.bus.config.CheckData {
		return s.callChecked(ctx, d)
	}
	return s.handler(ctx, &d.msg)
}

var errChangedData = errors.New("bus: a handler changed the data of its message, which other handlers share; copy the data before a change")

// callChecked finds handlers that change what they share.
func (s *Sub) callChecked(ctx context.Context, d *delivery) error {
	data, before := d.msg.Data, bytes.Clone(d.msg.Data)
	err := s.handler(ctx, &d.msg)
	if !bytes.Equal(data, before) {
		return errors.Join(err, errChangedData)
	}
	return err
}

// finish counts and reports the result of a message, and answers a request.
func (s *Sub) finish(d *delivery, err error) {
	request := d.request() != nil
	if request {
		s.respond(d, err)
	}
	d.end()
	if err != nil {
		err, end := examined(err)
		if !request || !end {
			s.fail(d, err)
		}
	}
	s.handled.Add(1)
}

// examined reports whether err is ErrEnd, and returns err, or a *PanicError if a
// method of err panics, as one of a nil pointer does: an observer may call these
// methods, too.
func examined(err error) (same error, end bool) {
	defer func() {
		if v := recover(); v != nil {
			same, end = &PanicError{Value: v, Stack: debug.Stack()}, false // S15
		}
	}()
	_, _ = errors.AsType[*PanicError](err)
	_ = err.Error()
	return err, errors.Is(err, ErrEnd)
}

func (s *Sub) fail(d *delivery, err error) {
	if _, ok := errors.AsType[*PanicError](err); ok {
		s.panicked.Add(1)
	} else {
		s.erred.Add(1)
	}
	s.bus.notify(HandlerFailed{SubID: s.subID(), Msg: &d.msg, Err: err})
}
