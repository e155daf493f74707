package cluster

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// Lock is the lock driver of a [Node], of scope Node. Its queue is always
// strict.
//
// All of its requests go over the one connection of the node; the hub pushes
// the results that a process waits for. When another hub takes over, this
// process first reports its grants and its queued requests to it.
type Lock struct {
	node  *Node
	clock protocol.Clock

	mu      sync.Mutex
	line    *protocol.Line       // to the hub, or nil while there is none
	changed chan struct{}        // closed when line changes
	why     error                // why no hub will come any more
	asked   map[uint64]*question // the questions without an answer, by number
	last    uint64               // the last number of a question
	claims  map[string]*claim    // by token
	full    int                  // the number of claims that triggers the next sweep
	closed  bool

	runs *table.Table // copies of the hub's records of runs

	// single counts the frames since the last one that was not the answer to the
	// only question. It belongs to the goroutine that reads from the hub.
	single int
	read   func(protocol.Type, []byte) error // readAnswer, made once so that a call allocates nothing
}

var (
	_ driver.Driver = (*Lock)(nil)
	_ driver.Asker  = (*Lock)(nil)
)

func newLock(n *Node) *Lock {
	x := &Lock{
		node:    n,
		clock:   protocol.ReadClock(),
		changed: make(chan struct{}),
		asked:   make(map[uint64]*question),
		claims:  make(map[string]*claim),
		full:    firstSweep,
		runs:    table.New(table.Config{Now: driver.Now}),
	}
	x.read = x.readAnswer
	return x
}

// handle handles a frame of the hub, on the reader's goroutine.
func (x *Lock) handle(t protocol.Type, d *protocol.Decoder) error {
	switch t {
	case protocol.LockAnswer:
		x.answer(d)
	case protocol.LockGranted:
		x.granted(d)
	case protocol.LockRefused:
		x.refused(d)
	case protocol.LockLost:
		x.lose(d)
	case protocol.LockRan:
		return x.ran(d)
	}
	return nil
}

// connected handles a new connection to a hub, before any other user of the
// connection: it reports the claims first.
func (x *Lock) connected(s *session) {
	x.single = 0
	x.mu.Lock()
	for _, f := range append(x.reportRuns(), x.report()...) {
		_ = s.line.Queue(f, 0) // disconnected handles the end of a line
		f.Free()
	}
	x.change(s.line)
	x.mu.Unlock()
	s.line.Flush()
}

// disconnected handles the end of the connection. Open requests get no answer
// from that hub.
func (x *Lock) disconnected(error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.change(nil)
	x.answerAll(errHubGone)
}

// ended handles the end of the node: no hub will come any more.
func (x *Lock) ended(why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.why = why
	x.runs.Close()
	x.change(nil)
	x.answerAll(why)
	for _, c := range x.claims {
		if c.state != claimHeld {
			x.refuse(c, why)
		} else if !errors.Is(why, driver.ErrClosed) {
			x.orphan(c, why)
		}
	}
}

// orphan ends a grant before its time, because its hub has ended for good: the
// key is not protected any more, and the next program begins with an empty
// table. The caller holds x's lock.
func (x *Lock) orphan(c *claim, why error) {
	select {
	case c.lost <- &driver.LostError{Key: c.request.Key, Cause: driver.Unreachable, Err: why}:
	default: // the grant was taken away already
	}
	x.forget(c)
}

// change replaces the line. The caller holds x's lock.
func (x *Lock) change(line *protocol.Line) {
	x.line = line
	close(x.changed)
	x.changed = make(chan struct{})
}

// answerAll answers all questions with err. The caller holds x's lock.
func (x *Lock) answerAll(err error) {
	for _, q := range x.asked {
		q.answered <- err
	}
	clear(x.asked)
}

// Info implements [driver.Driver]. At a socket it warns of the consequences of
// a stopped hub and of a private /tmp.
func (x *Lock) Info() driver.Info {
	return driver.Info{Name: "cluster", Scope: driver.Node, Format: strconv.FormatUint(protocol.Known.Newest, 10), Warnings: slices.Clone(x.node.warnings)}
}

// batchSize is the maximum number of grants in one request to renew.
const batchSize = 1000

// Renew implements [driver.Driver].
func (x *Lock) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	for i := 0; i < len(grants); i += batchSize {
		end := min(i+batchSize, len(grants))
		x.renew(ctx, grants[i:end], renewals[i:end])
	}
	return renewals
}

func (x *Lock) renew(ctx context.Context, grants []driver.Grant, renewals []driver.Renewal) {
	q := newQuestion("")
	defer q.free()
	q.grants, q.renewals = grants, renewals
	err := x.boundAll(grants)
	if err == nil {
		err = x.askRenewals(ctx, q, grants)
	}
	for i := range renewals {
		if err != nil {
			renewals[i] = driver.Renewal{Err: err}
		}
	}
}

func (x *Lock) askRenewals(ctx context.Context, q *question, grants []driver.Grant) error {
	return x.ask(ctx, q, func(number uint64) *protocol.Frame {
		f := protocol.Begin(protocol.LockRenew).Uint(number).Uint(uint64(len(grants)))
		for i := range grants {
			g := &grants[i]
			f.String(g.Key).String(g.Token).Int(int64(g.TTL)).Bool(g.NoRenew).Uint(g.Rev)
		}
		return f
	})
}

// bound records, at a socket, the maximum duration of the leases of the next
// request.
func (x *Lock) bound(ttl time.Duration) error {
	if x.node.presence == nil {
		return nil
	}
	return x.node.presence.bound(ttl)
}

func (x *Lock) boundAll(grants []driver.Grant) error {
	if x.node.presence == nil {
		return nil
	}
	if err := x.node.presence.seen(); err != nil {
		return err
	}
	var longest time.Duration
	for i := range grants {
		longest = max(longest, grants[i].TTL)
	}
	return x.bound(longest)
}

// Release implements [driver.Driver]. The claim stays until a hub has answered.
// If the hub ends meanwhile, this process reports the grant to the next hub
// before it releases it there, so that the next hub finds the grant (L5).
func (x *Lock) Release(ctx context.Context, g driver.Grant) error {
	c := x.held(g.Key, g.Token)
	q := newQuestion(g.Key)
	defer q.free()
	q.over, q.rest, q.rev = c, g.Rest, g.Rev
	err := x.ask(ctx, q, func(number uint64) *protocol.Frame { return x.releaseFrame(number, c, &g) })
	if err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	return x.unlessRepeated(c, q, err)
}

// conclude ends the lease of the claim that q has released, with err, the answer to
// q: a hub that takes over right after the answer must not learn of a lease. If the
// key stays taken, the claim stays as long, so that the next hub learns of that. The
// caller holds x's lock.
func (x *Lock) conclude(q *question, err error) {
	c := q.over
	switch {
	case errors.Is(err, driver.ErrLost), err == nil && q.rest == 0:
		x.forget(c)
	case err == nil:
		c.rests = true
		c.grant.TTL, c.grant.Rev, c.grant.Deadline = q.rest, q.rev, driver.Deadline(driver.Now(), q.rest)
	}
}

// unlessRepeated returns err, the answer to q, unless a copy of q may have been
// executed, or another hub had granted c, which may be nil.
func (x *Lock) unlessRepeated(c *claim, q *question, err error) error {
	if x.hasMoved(c) || q.again {
		return unlessForced(err)
	}
	return err
}

// held returns the claim of a grant. If the claim still waits, held ends it and
// returns nil.
func (x *Lock) held(key, token string) *claim {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.claims[token]
	if c != nil && c.state != claimHeld {
		x.refuse(c, &driver.LostError{Key: key, Cause: driver.Expired})
		return nil
	}
	return c
}

// hasMoved reports whether another hub had granted a claim, which may be nil.
func (x *Lock) hasMoved(c *claim) bool {
	if c == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return c.moved
}

// unlessForced returns nil for a granted lease that the hub does not know: a
// copy of the release may have been executed, or another hub had granted the
// lease (L5). A forced release remains an error.
func unlessForced(err error) error {
	if lost, ok := errors.AsType[*driver.LostError](err); ok && lost.Cause == driver.Forced {
		return err
	}
	return nil
}

// ForceRelease implements [driver.Driver].
func (x *Lock) ForceRelease(ctx context.Context, key string, f driver.Force) (n int, err error) {
	err = whenOpen(ctx, func() error { // the hub must know all leases of an earlier hub. L16
		q := newQuestion(key)
		defer q.free()
		err := x.inquire(ctx, q, func(number uint64) *protocol.Frame {
			return protocol.AddForce(protocol.Begin(protocol.LockForce).Uint(number).String(key), &f)
		})
		n = q.count
		return err
	})
	return n, err
}

// Inspect implements [driver.Driver].
func (x *Lock) Inspect(ctx context.Context, key string) (driver.State, error) {
	states, err := x.states(ctx, protocol.LockInspect, key)
	s := driver.State{Key: key}
	if err == nil && len(states) > 0 {
		s = states[0]
	}
	x.addRun(&s)
	return s, err
}

// List implements [driver.Driver]. Each state is consistent, but different
// states may be of different instants.
func (x *Lock) List(ctx context.Context, prefix string) ([]driver.State, error) {
	states, err := x.states(ctx, protocol.LockList, prefix)
	for i := range states {
		x.addRun(&states[i])
	}
	return states, err
}

func (x *Lock) states(ctx context.Context, t protocol.Type, name string) ([]driver.State, error) {
	q := newQuestion(name)
	defer q.free()
	err := x.inquire(ctx, q, func(number uint64) *protocol.Frame {
		q.states = nil // an earlier hub may have sent a part of the list
		return protocol.Begin(t).Uint(number).String(name).Bool(true)
	})
	return q.states, err
}

// inquire does the same as ask, for requests that fail after Close.
func (x *Lock) inquire(ctx context.Context, q *question, frame func(number uint64) *protocol.Frame) error {
	x.mu.Lock()
	closed := x.closed
	x.mu.Unlock()
	if closed {
		return driver.ErrClosed
	}
	return x.ask(ctx, q, frame)
}

// Close implements [driver.Driver]. Grants can still be renewed and released
// until the node, which owns the connection, is closed.
func (x *Lock) Close(context.Context) error {
	for _, c := range x.shut() {
		x.abandon(c)
	}
	return nil
}

// shut refuses all waiting and all future claims.
func (x *Lock) shut() (waited []*claim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for number, q := range x.asked {
		if q.claim != nil {
			delete(x.asked, number)
			q.answered <- driver.ErrClosed
		}
	}
	for _, c := range x.claims {
		if c.state != claimHeld {
			waited = append(waited, c)
			x.refuse(c, driver.ErrClosed)
		}
	}
	return waited
}
