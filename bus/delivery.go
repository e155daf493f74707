package bus

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// delivery is one message for one subscription, and the context that its
// handler is given: one allocation for both.
type delivery struct {
	msg      Msg
	sub      *Sub
	deadline time.Time
	request  *driver.Message // the request to answer; nil for an event
	answer   *answer         // of the responder
	hops     uint8
	mark     bool                  // no message: msg.Missed others were lost here
	asking   atomic.Int32          // its handler's requests to its own responder
	timed    atomic.Pointer[timed] // the context once its deadline is waited for
	next     *delivery             // behind it in its queue
}

// answer is a responder's: its data once it has returned, and its header.
type answer struct {
	data   []byte
	header Headers
}

func (s *Sub) newDelivery(m *driver.Message) *delivery {
	d := &delivery{
		msg:      Msg{Subject: m.Subject, Header: m.Header, Data: m.Data},
		sub:      s,
		deadline: m.Deadline,
		hops:     m.Hops,
	}
	d.msg.delivery, d.msg.bus = d, s.bus
	if s.kind == driver.Request {
		d.keepRequest(m)
	}
	return d
}

// keepRequest is apart from newDelivery so that events stay off the heap.
func (d *delivery) keepRequest(m *driver.Message) {
	request := *m
	request.Data, request.Header = nil, nil
	d.request = &request
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

// timed is a context of the standard library with the message's deadline. It
// is made when somebody waits, so that a message with a deadline costs no timer
// in most handlers, and derived contexts attach to it without goroutines.
type timed struct {
	context.Context
	cancel context.CancelFunc
}

func (d *delivery) Deadline() (time.Time, bool) {
	outer, ok := d.sub.ctx.Deadline()
	if d.deadline.IsZero() || ok && outer.Before(d.deadline) {
		return outer, ok
	}
	return d.deadline, true
}

func (d *delivery) Done() <-chan struct{} {
	if d.deadline.IsZero() {
		return d.sub.ctx.Done()
	}
	return d.clocked().Done()
}

func (d *delivery) Err() error {
	if d.timed.Load() != nil || isExpired(d.deadline) {
		return d.clocked().Err()
	}
	return d.sub.ctx.Err()
}

func (d *delivery) Value(key any) any {
	if key == (deliveryKey{}) {
		return d
	}
	if t := d.timed.Load(); t != nil {
		return t.Value(key)
	}
	return d.sub.ctx.Value(key)
}

// String names the context in derived contexts' texts.
func (d *delivery) String() string { return "bus.Msg(" + d.msg.Subject + ")" }

func (d *delivery) clocked() *timed {
	if t := d.timed.Load(); t != nil {
		return t
	}
	ctx, cancel := context.WithDeadline(d.sub.ctx, d.deadline)
	t := &timed{ctx, cancel}
	if !d.timed.CompareAndSwap(nil, t) {
		cancel()
		return d.timed.Load()
	}
	return t
}

// over frees the timer when the handler has returned.
func (d *delivery) over() {
	if t := d.timed.Load(); t != nil {
		t.cancel()
	}
}
