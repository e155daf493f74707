package bus

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/megaframework/mega/bus/driver"
)

// maxReason and maxText bound an error that is sent to the requester, in bytes.
const (
	maxReason = 64
	maxText   = 4 << 10
)

// Respond answers requests whose subject matches pattern, until the
// subscription is stopped or ctx has ended. By default the responders of a
// pattern form one group, in which one member answers each request, and each
// handles 64 requests at once. It returns the errors of [Bus.Subscribe].
func (b *Bus) Respond(ctx context.Context, pattern string, r Responder, opts ...SubOption) (*Sub, error) {
	return b.subscribe(ctx, pattern, driver.Request, r.handler(), atCallSite(opts))
}

// handler returns r as a Handler, for the middleware. The answer is kept in the
// delivery.
func (r Responder) handler() Handler {
	if r == nil {
		return nil
	}
	return func(ctx context.Context, m *Msg) error {
		data, err := r(ctx, m)
		if err != nil {
			return err
		}
		return keepAnswer(ctx, m, data, "")
	}
}

var errNotOurs = errors.New("bus: the middleware has replaced the message and its context, so the answer has nowhere to go")

// keepAnswer stores the answer in the delivery, to be sent after the middleware
// has returned.
func keepAnswer(ctx context.Context, m *Msg, data []byte, contentType string) error {
	d := m.delivery
	if d == nil {
		d = deliveryFrom(ctx)
	}
	if d == nil || d.request() == nil {
		return errNotOurs
	}
	a := d.ownAnswer()
	a.data = data
	if contentType == "" {
		return nil
	}
	delete(a.header, KeyContentType) // a responder's own names another codec
	return a.add(KeyContentType, contentType)
}

func (d *delivery) ownAnswer() *answer {
	if d.extra.answer == nil {
		d.extra.answer = &answer{}
	}
	return d.extra.answer
}

// ReplyHeader adds a value of key to the header of the answer, inside a
// responder whose context ctx is or descends from. The value is added to the
// returned answer and to the answers that [Msg.Reply] sends later. An error as
// the answer has no header. The rules for [Header] apply; a pair that breaks
// them fails with ErrBadHeader and changes nothing. Outside a responder,
// ReplyHeader fails with ErrInvalid. It must not be called from several
// goroutines at once for one request.
func ReplyHeader(ctx context.Context, key, value string) error {
	d := deliveryFrom(ctx)
	if d == nil || d.request() == nil {
		return fmt.Errorf("reply header %.80q: %w", key, invalid("no request is being answered"))
	}
	if err := d.ownAnswer().add(key, value); err != nil {
		return fmt.Errorf("reply header: %w", err)
	}
	return nil
}

func (a *answer) add(key, value string) error {
	o := Header(key, value)
	size, err := o.check() // S16
	if err != nil {
		return err
	}
	keys := len(a.header)
	if a.header[key] == nil {
		keys++
	}
	before, _ := headerSize(a.header)
	if err := checkBounds(keys, before+size); err != nil {
		return err
	}
	if a.header == nil {
		a.header = make(Headers, 1)
	}
	a.header.Add(key, value)
	return nil
}

// respond sends the answer of a responder's handler, or err. An answer that is
// too large for the bus or for the backend becomes an error of the responder.
func (s *Sub) respond(d *delivery, err error) {
	a := s.answer(d, err)
	if err = s.bus.checkSize(&a); err == nil {
		err = s.bus.driver.Answer(d, d.extra.request, a)
	}
	if _, ok := errors.AsType[*TooLargeError](err); ok {
		err = s.bus.driver.Answer(d, d.extra.request, failure(&d.extra.request, err)) // S17
	}
	if err != nil {
		s.bus.notify(AnswerFailed{SubID: s.subID(), Subject: d.msg.Subject, Err: classify(d, err)})
	}
}

func (s *Sub) answer(d *delivery, err error) (a driver.Message) {
	defer func() {
		if v := recover(); v != nil { // from a method of err, as of one that is a nil pointer
			a = failure(&d.extra.request, &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	switch {
	case errors.Is(err, ErrEnd):
		a = plainAnswer(&d.extra.request)
		a.End = true
		return a
	case err != nil:
		return failure(&d.extra.request, err)
	}
	a = plainAnswer(&d.extra.request)
	if own := d.extra.answer; own != nil {
		a.Data, a.Header = s.bus.own(own.data), cloneHeader(own.header) // S9
	}
	return a
}

func plainAnswer(request *driver.Message) driver.Message {
	return driver.Message{Kind: driver.Answer, Subject: request.Subject, ID: request.ID, Data: []byte{}}
}

// failure returns the answer of a responder that failed.
func failure(request *driver.Message, err error) driver.Message {
	a := plainAnswer(request)
	a.Err = remoteError(err)
	a.Data = []byte(a.Err.Message)
	return a
}

// remoteError converts err to the error for the requester. A panic's stack is
// not sent.
func remoteError(err error) *RemoteError {
	var own *RemoteError
	var coded interface{ Code() string }
	e := RemoteError{Reason: "error", Message: err.Error()}
	switch {
	case errors.As(err, &own):
		e = *own
	case errors.As(err, new(*PanicError)):
		e.Reason, e.Message = "panic", "the responder panicked"
	case errors.As(err, &coded):
		e.Reason = coded.Code()
		e.Retryable = errors.Is(err, ErrOverloaded) || errors.Is(err, ErrDisconnected) || errors.Is(err, ErrTerminated)
	}
	return bounded(e)
}

// bounded returns the error as it is sent, and as the requester gets it: the responder
// may be another program.
func bounded(e RemoteError) *RemoteError {
	if !isReason(e.Reason) {
		e.Reason = "error"
	}
	e.Message = strings.ToValidUTF8(e.Message[:min(len(e.Message), maxText)], "")
	return &e
}

func isReason(s string) bool {
	for i := range len(s) {
		c := s[i]
		if ('a' > c || c > 'z') && ('A' > c || c > 'Z') && ('0' > c || c > '9') && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxReason
}

// refusals queues the requests that no handler will answer. Their requesters
// get an error, so that they do not wait for their deadline.
type refusals struct {
	mu      sync.Mutex // guards the fields below; never held during a call
	waiting []refusal
	busy    bool // a goroutine sends them
}

// refusal keeps neither the data nor the header of its request, since many may
// wait.
type refusal struct {
	request *driver.Message
	why     error
}

const maxRefusals = 1 << 16

// refuse answers a request that no handler will get with an error, and ignores
// events. It does not block, and may be called under any mutex except the
// refusals'.
func (b *Bus) refuse(d *delivery, why error) {
	if d.request() == nil {
		return
	}
	rs := &b.refusals
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.waiting) >= maxRefusals {
		return // the requester waits until its deadline
	}
	rs.waiting = append(rs.waiting, refusal{d.request(), why})
	if !rs.busy {
		rs.busy = b.group.Go(b.refuseAll) // S26: the caller may hold a lock
	}
}

func (b *Bus) refuseAll(ctx context.Context) {
	for all := b.refusals.take(); all != nil; all = b.refusals.take() {
		for _, r := range all {
			bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
			_ = b.driver.Answer(bounded, *r.request, failure(r.request, r.why)) // on an error, the requester waits until its deadline
			cancel()
		}
	}
}

func (rs *refusals) take() []refusal {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	all := rs.waiting
	rs.waiting = nil
	rs.busy = all != nil
	return all
}
