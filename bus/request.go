package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// Request sends a request to the responders of subject, and returns the first
// answer. It waits until ctx ends, or for Config.Timeout if ctx has no
// deadline, and no longer than [Expires].
//
// The errors: ErrNoResponders at once without a responder; ErrTimeout;
// *RemoteError if the responder failed; ErrDisconnected if it, or the backend,
// can no longer be reached; ErrRefused if the backend refuses the request;
// ErrOverloaded; ErrClosed; the error of ctx; and the errors of [Bus.Publish] for
// invalid arguments.
// After ErrTimeout, ErrDisconnected or the end of ctx it is unknown whether the
// request was handled.
func (b *Bus) Request(ctx context.Context, subject string, data []byte, opts ...PubOption) (*Msg, error) {
	m := driver.Message{Kind: driver.Request, Subject: subject}
	answer, err := b.request(ctx, &m, data, opts)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", shorten(subject), err)
	}
	return answer, nil
}

func (b *Bus) request(ctx context.Context, m *driver.Message, data []byte, opts []PubOption) (*Msg, error) {
	if err := b.composeRequest(ctx, m, data, opts); err != nil {
		return nil, err
	}
	c, err := b.calls.open(1, m)
	if err != nil {
		return nil, err
	}
	defer b.calls.end(c)
	if s := b.beginAsking(ctx, m.Subject); s != nil {
		defer s.endAsking(ctx)
	}
	m.ID = c.id
	b.counters.requested.Add(1)
	if err := b.driver.Request(ctx, *m); err != nil {
		return nil, b.failed(ctx, err)
	}
	timer := time.NewTimer(time.Until(m.Deadline))
	defer timer.Stop()
	select { // an answer that has come is taken, whichever of these is chosen
	case <-c.news:
	case <-timer.C:
		c.fail(errDeadline)
	case <-ctx.Done():
		c.fail(errDeadline)
	}
	return b.outcome(ctx, c)
}

// composeRequest completes the request like any message, and sets its deadline.
func (b *Bus) composeRequest(ctx context.Context, m *driver.Message, data []byte, opts []PubOption) error {
	if err := b.compose(ctx, m, data, opts); err != nil {
		return err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(b.config.Timeout)
	}
	if m.Deadline.IsZero() || deadline.Before(m.Deadline) {
		m.Deadline = deadline // S12
	}
	return b.checkSize(m)
}

// errDeadline ends a call whose time is over. Answers that come later are late.
var errDeadline = errors.New("bus: the time of the call is over")

// outcome returns the answer or the error of a call that expects one answer.
func (b *Bus) outcome(ctx context.Context, c *call) (*Msg, error) {
	m, err := c.take()
	switch {
	case errors.Is(err, errDeadline):
		return nil, b.timedOut(ctx)
	case err != nil:
		return nil, b.failed(ctx, err)
	}
	return b.received(c, &m)
}

// received converts an answer to the result for the caller. Not every driver carries
// the subject.
func (b *Bus) received(c *call, m *driver.Message) (*Msg, error) {
	if m.Err != nil {
		return nil, m.Err
	}
	return &Msg{Subject: c.subject, Header: m.Header, Data: m.Data, bus: b}, nil
}

// failed classifies the error of a request without an answer, and counts it.
func (b *Bus) failed(ctx context.Context, err error) error {
	if errors.Is(err, ErrNoResponders) {
		b.counters.noResponders.Add(1)
	}
	if b.isClosed() {
		return ErrClosed
	}
	if isContextError(err) && ctx.Err() != nil && !errors.Is(err, ErrOverloaded) {
		return b.timedOut(ctx)
	}
	if errors.Is(err, ErrTimeout) {
		b.counters.timedOut.Add(1)
	}
	return classify(ctx, err)
}

// timedOut returns the error of a request that timed out, or whose ctx was
// canceled.
func (b *Bus) timedOut(ctx context.Context) error {
	switch err := ctx.Err(); {
	case b.isClosed():
		return ErrClosed
	case err == nil:
		b.counters.timedOut.Add(1)
		return fmt.Errorf("%w: %w", ErrTimeout, context.DeadlineExceeded)
	case errors.Is(err, context.DeadlineExceeded):
		b.counters.timedOut.Add(1)
		return fmt.Errorf("%w: %w", ErrTimeout, contextError(ctx))
	}
	return contextError(ctx)
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// calls are the requests in flight, by their id.
type calls struct {
	mu     sync.Mutex // guards the fields below
	byID   map[uint64]*call
	lastID uint64
	closed bool
	late   uint64 // answers without a waiting call
}

// call is a request in flight.
type call struct {
	id       uint64
	subject  string
	news     chan struct{} // receives when an answer or an error is ready
	deadline time.Time     // of the responders, too

	mu      sync.Mutex // guards the fields below
	most    int        // expected answers; 0 means any number
	answers []driver.Message
	bytes   int // of these
	taken   int
	err     error // why no further answer will come
}

func (cs *calls) init() { cs.byID = make(map[uint64]*call) }

// open registers a call for the request m that takes up to the given number of
// answers, or any number if most is 0.
func (cs *calls) open(most int, m *driver.Message) (*call, error) {
	c := &call{subject: m.Subject, news: make(chan struct{}, 1), deadline: m.Deadline, most: most}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return nil, ErrClosed
	}
	cs.lastID++
	c.id = cs.lastID
	cs.byID[c.id] = c
	return c, nil
}

func (cs *calls) end(c *call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.byID, c.id)
}

func (cs *calls) find(id uint64) *call {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.byID[id]
}

// answer passes an answer to its call, or counts it as late.
func (cs *calls) answer(m *driver.Message) {
	if c := cs.find(m.ID); c != nil && c.put(m) {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.late++
}

// fail ends one call, or every call if id is 0.
func (cs *calls) fail(id uint64, err error) {
	if id == 0 {
		cs.failAll(err)
		return
	}
	if c := cs.find(id); c != nil {
		c.fail(err)
	}
}

// failAll ends every call that is in flight now.
func (cs *calls) failAll(err error) {
	for _, c := range cs.inFlight() {
		c.fail(err)
	}
}

func (cs *calls) inFlight() []*call {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	all := make([]*call, 0, len(cs.byID))
	for _, c := range cs.byID {
		all = append(all, c)
	}
	return all
}

// close fails every call with ErrClosed and refuses new ones.
func (cs *calls) close() {
	cs.mu.Lock()
	cs.closed = true
	cs.mu.Unlock()
	cs.failAll(ErrClosed)
}

// put queues an answer and reports whether it did. A call that has all its
// answers, or has failed, takes none. If too many answers wait for the
// consumer, put fails the call.
func (c *call) put(m *driver.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := weightOf(m.Data, m.Header)
	switch {
	case c.err != nil || c.most > 0 && c.taken+len(c.answers) >= c.most:
		return false
	case endsWithDeadline(m.Err) && !time.Now().Before(c.deadline): // S12: whichever of the two is first
		c.err = errDeadline
		c.notify()
		return false
	case len(c.answers) >= maxAnswers || len(c.answers) > 0 && c.bytes+size > maxAnswerBytes: // S14
		c.err = fmt.Errorf("%w: %d answers with %d bytes wait for the consumer", ErrOverloaded, len(c.answers), c.bytes)
		c.notify()
		return false
	}
	c.answers = append(c.answers, *m)
	c.bytes += size
	c.notify()
	return true
}

// endsWithDeadline reports whether an error without a code of the responder's own
// may be the end of its context.
func endsWithDeadline(e *RemoteError) bool {
	return e != nil && (e.Reason == "error" || e.Reason == ErrTimeout.Code())
}

func (c *call) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		c.notify()
	}
}

// notify wakes the waiting caller. The caller of notify holds c.mu.
func (c *call) notify() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// take returns the next answer, or the reason why no further answer will come.
func (c *call) take() (driver.Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) == 0 {
		return driver.Message{}, c.err
	}
	m := c.answers[0]
	c.answers[0] = driver.Message{} // only the consumer keeps it
	c.answers = c.answers[1:]
	c.bytes -= weightOf(m.Data, m.Header)
	c.taken++
	if len(c.answers) > 0 || c.err != nil {
		c.notify()
	}
	return m, nil
}
