package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/goroutine"
)

// closeGrace is the time for which Close waits for handlers after it has ended
// their contexts.
const closeGrace = 250 * time.Millisecond

// endAtOnce is how many registrations are ended at a time.
const endAtOnce = 64

// Drain ends the Bus in order. New subscriptions are refused with ErrDraining
// from now on. The subscriptions to events end, and their queued and running
// messages are finished; these handlers may still publish, and send requests to
// responders of this Bus. Then the responders end in the same way, published
// messages are flushed, and the Bus is closed.
//
// It returns nil if all work was finished. If ctx ends earlier, the contexts of
// the handlers are ended, and the error wraps ctx's and an *UnfinishedError
// that lists the subscriptions. If the backend has not confirmed all messages, the
// error has their number. Drain may be called again, and at once from several
// goroutines: all get the result of the first call. Called from within a
// handler, it does not wait for the handlers of that subscription. After Close
// it returns ErrClosed.
func (b *Bus) Drain(ctx context.Context) error {
	if b.drains.CompareAndSwap(false, true) {
		b.drainErr = b.drain(ctx)
		close(b.drained)
		return b.drainErr
	}
	b.excuse(ctx) // the first Drain may wait for the handler that calls this one
	select {      // a result that is there outweighs a context that has ended
	case <-b.drained:
		return b.drainErr
	default:
	}
	select {
	case <-b.drained:
		return b.drainErr
	case <-ctx.Done():
		return fmt.Errorf("drain bus: %w: another Drain has not finished", contextError(ctx))
	}
}

func (b *Bus) drain(ctx context.Context) error {
	if !b.state.CompareAndSwap(open, draining) {
		return fmt.Errorf("drain bus: %w", ErrClosed)
	}
	subs := b.list()
	b.excuse(ctx)
	for _, k := range []driver.Kind{driver.Event, driver.Request} {
		b.leaveAll(ctx, subs, k) // S21
	}
	err := unfinished(ctx, subs)
	switch flushErr := b.Flush(ctx); {
	case err == nil:
		err = flushErr
	case flushErr != nil: // it has the number of messages that were not confirmed (S21)
		err = fmt.Errorf("%w; %w", err, flushErr)
	}
	if closeErr := b.shut(ctx); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("drain bus: %w", err)
	}
	return nil
}

// within returns the subscriptions in whose handlers the caller is, by its context or by
// its goroutine.
func (b *Bus) within(ctx context.Context) []*Sub {
	d, self := deliveryFrom(ctx), goroutine.ID()
	return slices.DeleteFunc(b.list(), func(s *Sub) bool { return (d == nil || d.sub != s) && !s.isRunBy(self) })
}

// isRunBy reports whether a goroutine is one of the runners of s.
func (s *Sub) isRunBy(id uintptr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.runners, func(r *runner) bool { return r.self.Load() == id })
}

// excuse makes every Drain and Close leave out the subscription in whose handler
// the caller is: its handler cannot return before they do (S26).
func (b *Bus) excuse(ctx context.Context) {
	for _, s := range b.within(ctx) {
		s.excuseOne.Do(func() { close(s.excused) })
	}
}

func (s *Sub) isExcused() bool {
	select {
	case <-s.excused:
		return true
	default:
		return false
	}
}

// isLeaving reports whether the end of the registration is not confirmed: messages may
// be on their way.
func (s *Sub) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == leaving
}

// leaveAll ends the registration of all subscriptions of a kind, several at a time,
// and waits for the end of those that are not excused.
func (b *Bus) leaveAll(ctx context.Context, subs []*Sub, k driver.Kind) {
	var leaving sync.WaitGroup
	slots := make(chan struct{}, endAtOnce)
	for _, s := range subs {
		if s.kind != k {
			continue
		}
		slots <- struct{}{}
		leaving.Go(func() {
			_ = s.leave(ctx) // on an error the subscription is listed as unfinished
			<-slots
		})
	}
	leaving.Wait()
	for _, s := range subs {
		if s.kind == k {
			s.await(ctx.Done(), s.excused)
		}
	}
}

// await waits for the end of s, or until excused is closed, and returns false if it
// gives up before.
func (s *Sub) await(giveUp, excused <-chan struct{}) bool {
	select {
	case <-s.done:
		return true
	default:
	}
	select {
	case <-s.done:
		return true
	case <-excused:
		return true
	case <-giveUp:
		return false
	}
}

// Close ends the Bus and its driver at once: queued messages are discarded,
// requests in flight fail with ErrClosed, and the contexts of the handlers are
// ended. They have a quarter of a second to return; the error is an
// *UnfinishedError that lists those which have not. A backend that does not answer
// has 5 s for the messages that it has not confirmed, and the error has their number;
// one that cannot be reached has no time. Close may be called again, and
// at once from several goroutines: each call returns when all is over, and the
// first one's error. Called from within a handler, it does not wait for the
// handlers of that subscription.
func (b *Bus) Close() error {
	b.excuse(context.Background())
	if err := b.shut(context.Background()); err != nil {
		return fmt.Errorf("close bus: %w", err)
	}
	return nil
}

// shut ends everything, and waits for the handlers of all subscriptions that
// are not excused. The driver may send messages until ctx ends.
func (b *Bus) shut(ctx context.Context) error {
	b.shutOne.Do(func() { b.shutErr = b.shutNow(ctx) })
	return b.shutErr
}

func (b *Bus) shutNow(ctx context.Context) error {
	b.state.Store(closed) // S22
	b.calls.close()
	subs := b.list()
	for _, s := range subs {
		s.halt(ErrClosed)
		s.cancel(ErrClosed)
		s.release()
	}
	grace, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	for _, s := range subs {
		s.await(grace.Done(), s.excused)
	}
	err := unfinished(context.Background(), subs)
	bounded, cancelClose := closeContext(ctx)
	defer cancelClose()
	if closeErr := b.driver.Close(bounded); err == nil && closeErr != nil {
		err = closeErr
	}
	b.watch.stop()
	if !b.endBackground() && err == nil {
		err = errObserver
	}
	return err
}

// closeContext returns the context of the driver's Close. It ends with ctx, but
// not within closeGrace.
func closeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithTimeout(context.Background(), closeTime(ctx))
	grace := time.Now().Add(closeGrace)
	unbind := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.Canceled) {
			return // the deadline of bounded
		}
		select {
		case <-time.After(time.Until(grace)):
			cancel()
		case <-bounded.Done():
		}
	})
	return bounded, func() { unbind(); cancel() }
}

// closeTime returns how long the driver may take to close: a backend that does not
// answer must not make Drain much longer than its ctx.
func closeTime(ctx context.Context) time.Duration {
	most := driver.CallTimeout
	if end, bounded := ctx.Deadline(); bounded {
		most = min(most, time.Until(end))
	}
	if ctx.Err() != nil {
		most = 0
	}
	return max(most, closeGrace)
}

// endBackground waits for the background goroutines, and reports whether they have
// returned. The observer has as much time as handlers have. Only it is code of the
// user: the others end registrations, within CallTimeout, and on a busy machine they
// may need more time than handlers have.
func (b *Bus) endBackground() bool {
	return b.group.Close(closeGrace) || !b.notifier.isBusy() && b.group.Close(driver.CallTimeout)
}

var errObserver = errors.New("bus: the observer, or a call to the backend, has not returned")

// UnfinishedError lists the subscriptions whose work was not finished.
type UnfinishedError struct {
	Subs []SubStats
}

func (e *UnfinishedError) Error() string {
	const most = 10
	var names []string
	for _, s := range e.Subs[:min(len(e.Subs), most)] {
		what := fmt.Sprintf("%d running, %d queued", s.Running, s.Pending)
		if s.Running+s.Pending == 0 {
			what = "its end is not confirmed"
		}
		names = append(names, fmt.Sprintf("%s (%s): %s", s.Name, s.Site, what))
	}
	if len(e.Subs) > most {
		names = append(names, "…")
	}
	return fmt.Sprintf("bus: %d subscriptions were cut off: %s", len(e.Subs), strings.Join(names, "; "))
}

// Code returns "bus.unfinished".
func (e *UnfinishedError) Code() string { return "bus.unfinished" }

// unfinished is the error about the subscriptions that have not ended. A running
// handler of one that is excused does not count. If ctx has ended, the error
// wraps its error.
func unfinished(ctx context.Context, subs []*Sub) error {
	var left []SubStats
	for _, s := range subs {
		if st := s.Stats(); st.Pending > 0 || st.Running > 0 && !s.isExcused() || s.isLeaving() {
			left = append(left, st)
		}
	}
	if len(left) == 0 {
		return nil
	}
	slices.SortFunc(left, func(a, b SubStats) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Site, b.Site)) })
	err := &UnfinishedError{Subs: left}
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", contextError(ctx), err)
}

// enroll adds a subscription, unless the Bus takes none any more.
func (b *Bus) enroll(s *Sub) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state.Load() {
	case closed:
		return ErrClosed
	case draining:
		return ErrDraining
	}
	b.subs[s] = struct{}{}
	return nil
}

// retire drops a subscription that is over, and keeps its numbers.
func (b *Bus) retire(s *Sub) {
	s.mu.Lock()
	last := s.stats()
	s.retired = true
	s.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, s)
	b.gone.add(last)
}

func (b *Bus) list() []*Sub {
	subs, _ := b.enrolled()
	return subs
}

// endLater ends the registration of a subscription that was halted where its
// driver must not be called.
func (b *Bus) endLater(s *Sub) {
	b.group.Go(func(context.Context) { s.endRegistration(s.registered()) })
}
