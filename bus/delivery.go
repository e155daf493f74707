package bus

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/lazyctx"
)

// delivery is one message for one subscription, and the context that its
// handler is given. It is small, since many may wait.
type delivery struct {
	msg   Msg
	sub   *Sub
	extra *extra // of a request, or of an event with a deadline
	hops  uint8
	mark  bool      // no message: msg.Missed others were lost here
	next  *delivery // behind it in its queue
}

// extra is what few events have.
type extra struct {
	deadline time.Time
	timed    lazyctx.State  // of the context with the deadline; it ends when the handler has returned
	request  driver.Message // the request to answer, without its data and header
	answer   *answer        // of the responder
	asking   atomic.Int32   // the handler's requests to its own responder
}

// answer is a responder's: its data once it has returned, and its header.
type answer struct {
	data   []byte
	header Headers
}

func (s *Sub) newDelivery(m *driver.Message) *delivery {
	d := allot(m)
	// One field after the other: a copy of the whole is slower while the
	// collector runs.
	d.msg.Subject, d.msg.Header, d.msg.Data = m.Subject, m.Header, m.Data
	d.msg.bus, d.msg.delivery = s.bus, d
	d.sub, d.hops = s, m.Hops
	if s.kind == driver.Request || !m.Deadline.IsZero() {
		d.extra = newExtra(m)
	}
	return d
}

func newExtra(m *driver.Message) *extra {
	x := &extra{deadline: m.Deadline, request: *m}
	x.request.Data, x.request.Header = nil, nil
	return x
}

// request returns the request to answer, or nil for an event.
func (d *delivery) request() *driver.Message {
	if d.extra == nil || d.sub.kind != driver.Request {
		return nil
	}
	return &d.extra.request
}

// deadline returns when the message is of no use any more, or zero for never.
func (d *delivery) deadline() time.Time {
	if d.extra == nil {
		return time.Time{}
	}
	return d.extra.deadline
}

// timed returns the context with the deadline if there is one by now, or nil.
func (d *delivery) timed() *lazyctx.Inner {
	if d.extra == nil {
		return nil
	}
	return d.extra.timed.Inner()
}

func isExpired(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

type deliveryKey struct{}

// deliveryFrom returns the delivery whose handler ctx was given to, or nil.
func deliveryFrom(ctx context.Context) *delivery {
	d, ok := ctx.(*delivery)
	if !ok {
		d, _ = ctx.Value(deliveryKey{}).(*delivery)
	}
	return d
}

// MsgFrom returns the message that is being handled with ctx. There is none in
// [OnGap].
func MsgFrom(ctx context.Context) (*Msg, bool) {
	if d := deliveryFrom(ctx); d != nil && !d.mark {
		return &d.msg, true
	}
	return nil, false
}

func (d *delivery) Deadline() (time.Time, bool) {
	outer, ok := d.sub.ctx.Deadline()
	own := d.deadline()
	if own.IsZero() || ok && outer.Before(own) {
		return outer, ok
	}
	return own, true
}

func (d *delivery) Done() <-chan struct{} {
	if d.deadline().IsZero() {
		return d.sub.ctx.Done()
	}
	return d.withDeadline().Done()
}

func (d *delivery) Err() error {
	if d.timed() != nil || d.hasEnded() || isExpired(d.deadline()) {
		return d.withDeadline().Err()
	}
	return d.sub.ctx.Err()
}

func (d *delivery) Value(key any) any {
	if key == (deliveryKey{}) {
		return d
	}
	if t := d.timed(); t != nil {
		return t.Value(key)
	}
	return d.sub.ctx.Value(key)
}

// String names the context in derived contexts' texts.
func (d *delivery) String() string { return "bus.Msg(" + d.msg.Subject + ")" }

// withDeadline returns the context of a message that has a deadline, which it makes
// at the first call.
func (d *delivery) withDeadline() *lazyctx.Inner {
	if t := d.timed(); t != nil {
		return t
	}
	ctx, cancel := context.WithDeadline(d.sub.ctx, d.extra.deadline)
	return d.extra.timed.Use(&lazyctx.Inner{Context: ctx, End: func(error) { cancel() }}, nil)
}

func (d *delivery) hasEnded() bool { return d.extra != nil && d.extra.timed.Ended() }

// end ends the context of a message with a deadline, and frees its timer, when the
// handler has returned.
func (d *delivery) end() {
	if !d.deadline().IsZero() {
		d.extra.timed.End(nil)
	}
}
