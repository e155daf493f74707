package megatest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/memory"
)

// Bus is the bus of the application, seen from outside: the events that the
// application has published since its boot, and another service that publishes,
// requests and answers.
//
//	kit.Bus.Respond("price.of", func(*bus.Msg) (any, error) { return 9.5, nil }) // another service
//	kit.Post("/products/1/buy", nil).Status(http.StatusOK)
//	sales := megatest.Published(kit.Bus, shop.Sold, 1) // []shop.Sale
//	kit.Bus.Never("product.sold_out")
//
//	kit.Bus.Publish("order.made", order) // by another service
//	kit.Bus.Settle()                     // it was handled
type Bus struct {
	t      testing.TB
	driver *recording
	bus    *bus.Bus
}

// Event is an event that the application has published.
type Event struct {
	*bus.Msg
	t testing.TB
}

// Decode decodes the data of the event into v. It ends the test on an error.
func (e Event) Decode(v any) {
	e.t.Helper()
	if err := e.Msg.Decode(v); err != nil {
		e.t.Fatalf("%v: %s", err, e.Data)
	}
}

// Expect waits until the application has published n events whose subjects
// match pattern, and returns them in their order. It ends the test if there are
// fewer within five seconds, and fails it if there are already more.
func (b *Bus) Expect(pattern string, n int) []Event {
	b.t.Helper()
	b.check(pattern)
	if n < 1 {
		b.t.Fatalf("Expect %s: %d events are none to wait for: see Never", pattern, n)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		found, more := b.driver.find(pattern)
		if len(found) > n {
			b.t.Errorf("%d events match %s, want %d; the application published %s", len(found), pattern, n, b.published())
		}
		if len(found) >= n {
			return b.events(found)
		}
		select {
		case <-more:
		case <-late.C:
			b.t.Fatalf("%d events match %s, want %d; the application published %s", len(found), pattern, n, b.published())
		}
	}
}

// Published is Expect for a topic. It returns the decoded events.
func Published[T any](b *Bus, topic bus.Topic[T], n int) []T {
	b.t.Helper()
	all := make([]T, 0, n)
	for _, e := range b.Expect(string(topic), n) {
		var v T
		e.Decode(&v)
		all = append(all, v)
	}
	return all
}

// Never fails the test if the application has already published such an event.
func (b *Bus) Never(pattern string) {
	b.t.Helper()
	b.check(pattern)
	if found, _ := b.driver.find(pattern); len(found) > 0 {
		b.t.Errorf("published although it should not be: %s %s", found[0].Subject, found[0].Data)
	}
}

// Forget discards the recorded events, for a test that expects later ones.
func (b *Bus) Forget() { b.driver.forget() }

// String returns the recorded events, one on each line.
func (b *Bus) String() string {
	found, _ := b.driver.find(">")
	var text strings.Builder
	for _, m := range found {
		fmt.Fprintf(&text, "%s %s\n", m.Subject, m.Data)
	}
	return text.String()
}

// published returns the recorded events for the text of a failure.
func (b *Bus) published() string {
	if all := b.String(); all != "" {
		return "\n" + all
	}
	return "nothing"
}

// Publish publishes an event as another service does: the application's
// subscribers receive it, and Expect does not count it. v is sent as JSON,
// bytes unchanged.
func (b *Bus) Publish(subject string, v any, opts ...bus.PubOption) {
	b.t.Helper()
	err := b.bus.Publish(context.WithValue(b.t.Context(), foreign{}, true), subject, b.encode(v, opts), opts...)
	if err != nil {
		b.t.Fatalf("as another service: %v", err)
	}
}

// Request sends a request to the application as another service does.
func (b *Bus) Request(subject string, v any, opts ...bus.PubOption) (*bus.Msg, error) {
	b.t.Helper()
	return b.bus.Request(b.t.Context(), subject, b.encode(v, opts), opts...)
}

// Respond answers the application's requests in place of another service, until
// the test ends. The result of answer is sent as JSON, bytes unchanged; the
// requester receives a *bus.RemoteError unchanged. Respond ends the test if the
// application itself responds to pattern.
func (b *Bus) Respond(pattern string, answer func(*bus.Msg) (any, error)) {
	b.t.Helper()
	for _, s := range b.bus.Stats().Subs {
		if s.Answers && s.Pattern == pattern {
			b.t.Fatalf("respond to %s: %s does so already, at %s", pattern, s.Name, s.Site)
		}
	}
	_, file, line, _ := runtime.Caller(1)
	_, err := b.bus.RespondValue(context.WithoutCancel(b.t.Context()), pattern, func(_ context.Context, m *bus.Msg) (any, error) { return answer(m) },
		bus.Name("the test"), bus.Site(fmt.Sprintf("%s:%d", file, line)))
	if err != nil {
		b.t.Fatalf("%v", err)
	}
}

// Settle waits until every message has been handled, also the messages that
// handlers published meanwhile. It ends the test after five seconds.
func (b *Bus) Settle() {
	b.t.Helper()
	for began, before := time.Now(), b.bus.Stats(); ; time.Sleep(time.Millisecond) {
		// Compare two snapshots: the counters of several subscriptions in one
		// snapshot are not from the same moment.
		now := b.bus.Stats()
		if quiet(before) && quiet(now) && before.Total.Received == now.Total.Received {
			return
		}
		if time.Since(began) > patience {
			b.t.Fatalf("messages are still being handled after %v: %+v", patience, busy(now))
		}
		before = now
	}
}

func quiet(s bus.Stats) bool { return s.Total.Pending+s.Total.Running == 0 }

// busy returns the subscriptions with unhandled messages.
func busy(s bus.Stats) (all []string) {
	for _, sub := range s.Subs {
		if sub.Pending+sub.Running > 0 {
			all = append(all, fmt.Sprintf("%s has %d waiting and %d running", sub.Name, sub.Pending, sub.Running))
		}
	}
	return all
}

func (b *Bus) check(pattern string) {
	b.t.Helper()
	if err := bus.CheckPattern(pattern); err != nil {
		b.t.Fatalf("%v", err)
	}
}

func (b *Bus) encode(v any, opts []bus.PubOption) []byte {
	b.t.Helper()
	if data, ok := v.([]byte); ok {
		return data
	}
	data, err := b.bus.Encode(v, opts...)
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	return data
}

func (b *Bus) events(found []*bus.Msg) []Event {
	all := make([]Event, len(found))
	for i, m := range found {
		all[i] = Event{m, b.t}
	}
	return all
}

// foreign marks the messages that the test publishes.
type foreign struct{}

// recording is the memory driver that also records every event. It records
// before it publishes, so that a caller who has seen an effect of an event also
// finds the event.
type recording struct {
	*memory.Bus

	mu     sync.Mutex // guards the fields below
	events []*bus.Msg
	more   chan struct{} // closed and replaced at each event
}

func newRecording() *recording { return &recording{Bus: memory.NewBus(), more: make(chan struct{})} }

// Publish implements [driver.Driver].
func (r *recording) Publish(ctx context.Context, m driver.Message) error {
	if ctx.Value(foreign{}) == nil {
		r.remember(&bus.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
	}
	return r.Bus.Publish(ctx, m)
}

func (r *recording) remember(m *bus.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, m)
	close(r.more)
	r.more = make(chan struct{})
}

func (r *recording) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

func (r *recording) find(pattern string) (found []*bus.Msg, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.events {
		if matches(strings.Split(pattern, "."), strings.Split(m.Subject, ".")) {
			found = append(found, m)
		}
	}
	return found, r.more
}

// matches reports whether the words of a subject match a pattern, where *
// matches one word and > matches one or more.
func matches(pattern, subject []string) bool {
	if last := len(pattern) - 1; pattern[last] == ">" {
		if len(subject) <= last {
			return false
		}
		pattern, subject = pattern[:last], subject[:last]
	}
	return slices.EqualFunc(pattern, subject, func(p, s string) bool { return p == "*" || p == s })
}
