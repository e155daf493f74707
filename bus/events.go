package bus

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Observer receives the events of a [Bus]. Logs, metrics, traces and consoles
// are built on it, so that this package needs none of their libraries. Errors
// of handlers are reported only here.
//
// Observe is called from one goroutine at a time, in the order of the events,
// and not from the goroutine that caused them: Observe may use the bus, and if
// it blocks, only later events wait. Up to 65 536 events wait for it; further
// ones are counted in Stats.Unreported. A panic in it is recovered and dropped.
type Observer interface {
	Observe(Event)
}

// Event is one of the event types of this package. More may be added.
type Event interface{ event() }

// SubID identifies a subscription in an event.
type SubID struct {
	Name    string `json:"name"` // set by [Name], else its pattern
	Pattern string `json:"pattern"`
	Group   string `json:"group,omitempty"`
	Site    string `json:"site"`              // file:line of the Subscribe
	Answers bool   `json:"answers,omitempty"` // made by Respond
}

type (
	// HandlerFailed: a handler returned an error, or panicked, in which case
	// Err is a *PanicError. It is reported for every such message.
	HandlerFailed struct {
		SubID
		Msg *Msg
		Err error
	}
	// Dropped: messages were lost because the buffer of a subscription was
	// full. Count is their number since the last report. The first loss is
	// reported at once, later ones at most once a second.
	Dropped struct {
		SubID
		Subject string // of the first of them
		Count   uint64
	}
	// Missed: messages were lost on the way to a subscription. Count is -1 if
	// the number is unknown, as after an outage.
	Missed struct {
		SubID
		Count int
	}
	// GapFailed: a call of OnGap returned an error, or panicked, in which case
	// Err is a *PanicError. OnGap is called again after Again; 0 means never,
	// since the subscription has ended.
	GapFailed struct {
		SubID
		Missed int
		Err    error
		Again  time.Duration
	}
	// Stuck: a handler, or OnGap, has not returned for the time For. It is
	// reported repeatedly until the handler returns. For OnGap the subject is
	// the pattern.
	Stuck struct {
		SubID
		Subject string
		For     time.Duration
	}
	// Blocked: every handler of a responder waits for a request that the
	// responder itself has to answer, so that these requests wait until one of
	// them times out, unless another member of its group answers. It is
	// reported when the last handler begins to wait, at most once a second. A
	// higher [Concurrency] helps if the depth is bounded; otherwise the
	// responder has to call its own code instead of requesting its own subject.
	Blocked struct {
		SubID
		Subject  string // of the last of these requests
		Handlers int
	}
	// Ended: a subscription ended without a Stop or Drain: its buffer was full, or
	// the backend refused it later. Err is ErrTerminated in both cases.
	Ended struct {
		SubID
		Err error
	}
	// AnswerFailed: the answer to a request could not be sent.
	AnswerFailed struct {
		SubID
		Subject string
		Err     error
	}
	// PublishLost: accepted messages may not have arrived, since the connection
	// ended before the backend confirmed them. The numbers are upper bounds.
	PublishLost struct {
		Messages, Bytes int
		Err             error
	}
	// PublishRefused: the backend refused an accepted message. Subject is "" if
	// the backend does not name it.
	PublishRefused struct {
		Subject string
		Err     error
	}
	// Disconnected: the backend cannot be reached. The requests in flight have
	// failed.
	Disconnected struct{ Err error }
	// Connected: the backend can be reached again.
	Connected struct{ After time.Duration }
)

func (HandlerFailed) event()  {}
func (Dropped) event()        {}
func (Missed) event()         {}
func (GapFailed) event()      {}
func (Stuck) event()          {}
func (Blocked) event()        {}
func (Ended) event()          {}
func (AnswerFailed) event()   {}
func (PublishLost) event()    {}
func (PublishRefused) event() {}
func (Disconnected) event()   {}
func (Connected) event()      {}

// maxUnreported bounds the events that wait for the observer.
const maxUnreported = 1 << 16

// notifier queues the events that wait for the observer.
type notifier struct {
	mu         sync.Mutex // guards the fields below; never held while calling Observe
	events     []Event
	notifying  bool // a goroutine calls Observe
	unreported uint64
}

// notify queues an event for the observer, if one is configured. It does not
// block and may be called under any mutex except the notifier's.
func (b *Bus) notify(e Event) {
	if b.config.Observer == nil {
		return
	}
	t := &b.notifier
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.events) >= maxUnreported {
		t.unreported++
		return
	}
	t.events = append(t.events, e)
	if !t.notifying {
		t.notifying = b.group.Go(b.notifyAll)
	}
}

func (b *Bus) notifyAll(context.Context) {
	var events []Event
	over := false
	defer func() {
		if !over { // the observer has ended the goroutine
			b.notifier.putBack(events)
			b.group.Go(b.notifyAll)
		}
	}()
	for events = b.notifier.take(); events != nil; events = b.notifier.take() {
		for len(events) > 0 {
			e := events[0]
			events = events[1:]
			b.observe(e)
		}
	}
	over = true
}

// putBack returns events that were taken and not reported.
func (t *notifier) putBack(events []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = slices.Concat(events, t.events)
}

func (t *notifier) take() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	t.events = nil
	t.notifying = events != nil
	return events
}

// isBusy reports whether a goroutine calls the observer.
func (t *notifier) isBusy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.notifying
}

func (b *Bus) observe(e Event) {
	defer func() { _ = recover() }()
	b.config.Observer.Observe(e)
}
