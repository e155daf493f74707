package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/megaframework/mega/bus/driver"
)

// Drain ends the subscription in order: it ends the registration, lets the handlers
// finish all queued messages, and returns when the last handler has returned.
// If ctx ends earlier, Drain stops the subscription, ends the contexts of its
// handlers and returns an error that wraps ctx's and has the numbers of
// unhandled messages and running handlers.
//
// Called from within a handler of the subscription, it does not wait for the
// handlers. Called from within another handler of the Bus, it does not wait for a
// handler that waits, by a Drain of its own, for the caller's handler, or that drains
// or closes the Bus. Handlers of different Buses that drain each other's subscriptions
// wait until a ctx ends.
func (s *Sub) Drain(ctx context.Context) error {
	if err := s.leave(ctx); err != nil {
		return s.cutOff(ctx)
	}
	select {
	case <-s.done: // a search for the callers takes long among many subscriptions
		return nil
	default:
	}
	callers := s.bus.within(ctx)
	if !s.beginWait(callers) {
		return nil
	}
	defer s.endWait(callers)
	var excused <-chan struct{}
	if len(callers) > 0 {
		excused = s.excused // its handler would wait for the caller's (S26)
	}
	if s.await(ctx.Done(), excused) {
		return nil
	}
	return s.cutOff(ctx)
}

// beginWait records that handlers of the callers wait for the end of s. It returns
// false, and records nothing, if s in turn waits for one of them: none of the
// handlers of such a circle could return (S26).
func (s *Sub) beginWait(callers []*Sub) bool {
	s.bus.waits.Lock()
	defer s.bus.waits.Unlock()
	if s.leadsTo(callers) {
		return false
	}
	for _, c := range callers {
		c.waitsFor = append(c.waitsFor, s)
	}
	return true
}

// leadsTo reports whether s is one of the subscriptions, or waits for one of them. The
// caller holds the mutex waits.
func (s *Sub) leadsTo(subs []*Sub) bool {
	return slices.Contains(subs, s) || slices.ContainsFunc(s.waitsFor, func(next *Sub) bool { return next.leadsTo(subs) })
}

func (s *Sub) endWait(callers []*Sub) {
	s.bus.waits.Lock()
	defer s.bus.waits.Unlock()
	for _, c := range callers {
		i := slices.Index(c.waitsFor, s)
		c.waitsFor = slices.Delete(c.waitsFor, i, i+1)
	}
}

// leave ends the registration and lets the handlers finish the queued messages. It
// returns ctx's error if ctx has ended. A missing confirmation of the backend
// is no error, since the queued messages are handled all the same, but a gap: more
// messages may have been on their way. The driver reports that once, so of several
// calls the first one ends the registration, and the others wait for it (S4).
func (s *Sub) leave(ctx context.Context) error {
	left, first := s.beginLeaving()
	switch {
	case left == nil:
		return nil
	case !first:
		select {
		case <-left:
			return nil
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
	defer close(left)
	r := s.registered()
	if r == nil { // Subscribe has not returned yet
		s.end(ErrDraining)
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	if err := r.End(bounded); err != nil {
		s.missRest()
		if ctx.Err() != nil {
			return contextError(ctx)
		}
	}
	s.empty()
	return nil
}

// missRest counts and reports a gap of unknown size: messages may have been on their
// way when the registration ended.
func (s *Sub) missRest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == leaving {
		s.addGap(-1) // S4
		s.bus.notify(Missed{SubID: s.subID(), Count: -1})
	}
}

// empty refuses arriving messages from now on.
func (s *Sub) empty() {
	s.mu.Lock()
	if s.phase == leaving {
		s.phase = emptying
	}
	r := s.hire() // messages held back during an outage are handled now
	last := s.settle()
	s.mu.Unlock()
	if r != nil {
		go s.run(r)
	}
	if last {
		s.bury()
	}
}

// beginLeaving returns a channel that leave closes when it has ended the
// registration, and whether this call is the first one. It returns nil if the
// registration has ended.
func (s *Sub) beginLeaving() (left chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.phase {
	case active:
		s.phase, s.left = leaving, make(chan struct{})
		return s.left, true
	case leaving:
		return s.left, false
	}
	return nil, false
}

// cutOff stops the subscription when the time for draining is over, and returns
// the error of Drain.
func (s *Sub) cutOff(ctx context.Context) error {
	left := s.Stats()
	s.cancel(errTimeOver)
	if s.halt(nil) {
		s.bus.endLater(s) // ctx has ended, and the backend may be slow
	}
	return fmt.Errorf("drain %s: %w: %d messages were not handled and %d handlers were still running", s.name, contextError(ctx), left.Pending, left.Running)
}

// errTimeOver is the cause of the handlers' contexts after a drain that ran out
// of time.
var errTimeOver = errors.New("bus: the time for draining is over")
