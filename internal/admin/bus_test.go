//go:build linux || darwin

package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

func newBus(t testing.TB) *bus.Bus {
	t.Helper()
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// tailed reads the events of pattern, once that is in effect, until stop is
// called.
func tailed(t *testing.T, c *admin.Client, pattern string) (events <-chan admin.Event, ended <-chan error, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	begun, seen, done := make(chan struct{}), make(chan admin.Event, 100), make(chan error, 1)
	go func() {
		done <- c.Tail(ctx, pattern, func() { close(begun) }, func(e admin.Event) error { seen <- e; return nil })
	}()
	select {
	case <-begun:
	case err := <-done:
		t.Fatalf("tail %s: %v", pattern, err)
	}
	return seen, done, cancel
}

func TestEventsAreFollowedThroughTheSocket(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	events, ended, stop := tailed(t, admin.Dial(s.Path()), "order.*")
	for _, data := range []string{`{"id": 7, "note": "<b>"}`, "plain words", "\xff\x00", ""} {
		if err := p.Bus.Publish(t.Context(), "order.made", []byte(data), bus.Header("Shop", "north")); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []admin.Data{{JSON: json.RawMessage(`{"id":7,"note":"<b>"}`)}, {Text: "plain words"}, {Binary: []byte("\xff\x00")}, {}} {
		e := <-events
		if e.Subject != "order.made" || e.Headers.Get("Shop") != "north" || e.Missed != 0 || !bytes.Equal(e.Bytes(), want.Bytes()) || (e.JSON == nil) != (want.JSON == nil) {
			t.Errorf("event %d: %+v, want %+v", i, e, want)
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the tail ended with %v", err)
	}
	until(t, "the end of the subscription", func() bool { return len(p.Bus.Stats().Subs) == 0 }) // nobody listens any more
}

// A decoder bounds the depth of a document, and an event is a part of one.
func TestAnEventOfTheGreatestDepthDoesNotEndATail(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	events, ended, _ := tailed(t, admin.Dial(s.Path()), "order.*")
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	if err := p.Bus.Publish(t.Context(), "order.made", []byte(deep)); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-events:
		if string(e.Bytes()) != deep {
			t.Errorf("it has %d bytes", len(e.Bytes()))
		}
	case err := <-ended:
		t.Errorf("the tail ended with %v", err)
	}
}

func TestAnAnswerKeepsTheCharactersOfHTML(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	if _, err := p.Bus.Respond(t.Context(), "page", func(context.Context, *bus.Msg) ([]byte, error) { return []byte(`{"text":"<b>&"}`), nil }); err != nil {
		t.Fatal(err)
	}
	r, err := admin.Dial(s.Path()).Request(t.Context(), admin.Message{Subject: "page"})
	if err != nil || !strings.Contains(string(r.JSON), "<b>&") {
		t.Errorf("%s, %v", r.JSON, err)
	}
}

// Whoever does not read loses events, and is told how many. Neither the
// publisher nor the bus's own count of drops notice.
func TestTailThatIsNotReadLosesEventsAndHoldsUpNobody(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	begun, read, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, missed := 0, 0
	const published = 300
	go func() {
		ended <- admin.Dial(s.Path()).Tail(ctx, ">", func() { close(begun); <-read }, func(e admin.Event) error {
			missed += e.Missed
			if e.Subject != "" {
				got++
			}
			if got+missed == published {
				cancel()
			}
			return nil
		})
	}()
	<-begun
	for range published {
		if err := p.Bus.Publish(t.Context(), "big.one", bytes.Repeat([]byte("x"), 256<<10)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all events", func() bool { return p.Bus.Stats().Total.Handled >= published })
	close(read)
	if err := <-ended; !errors.Is(err, context.Canceled) || missed == 0 || got == 0 {
		t.Errorf("%v: got %d and missed %d of %d", err, got, missed, published)
	}
	if d := p.Bus.Stats().Total.Dropped; d != 0 {
		t.Errorf("the bus says that %d were dropped", d)
	}
}

func TestTailsEndWithTheBusAndWithTheServer(t *testing.T) {
	for name, end := range map[string]func(p admin.Process, s *admin.Server) error{
		"bus":    func(p admin.Process, _ *admin.Server) error { return p.Bus.Drain(context.Background()) },
		"server": func(_ admin.Process, s *admin.Server) error { return s.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := process(t)
			s := open(t, p, folders(shortdir.New(t)))
			events, ended, _ := tailed(t, admin.Dial(s.Path()), ">")
			if err := p.Bus.Publish(t.Context(), "last.one", nil); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(end(p, s), <-ended); err != nil {
				t.Error(err)
			}
			if e := <-events; e.Subject != "last.one" {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestStalledTailDoesNotHoldUpTheEnd(t *testing.T) {
	p, _ := process(t)
	endsBesideAStalledTail(t, open(t, p, folders(shortdir.New(t))), p)
}

// endsBesideAStalledTail closes the server while a client that does not read tails
// the messages of p through it.
func endsBesideAStalledTail(t *testing.T, s *admin.Server, p admin.Process) {
	t.Helper()
	begun, let, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- admin.Dial(s.Path()).Tail(t.Context(), ">", func() { close(begun); <-let }, func(admin.Event) error { return nil })
	}()
	<-begun
	for range 20 {
		if err := p.Bus.Publish(t.Context(), "big.one", bytes.Repeat([]byte("x"), 256<<10)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all events", func() bool { return p.Bus.Stats().Total.Handled >= 20 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("the end of the server: %v", err)
	}
	close(let)
	t.Log(<-ended) // however it was cut off
}

func TestTailsAreBounded(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	c := admin.Dial(s.Path())
	for range 8 {
		tailed(t, c, ">")
	}
	err := c.Tail(t.Context(), ">", func() {}, func(admin.Event) error { return nil })
	if no, ok := errors.AsType[*admin.Error](err); !ok || no.Code() != "mega.busy" {
		t.Errorf("the ninth: %v", err)
	}
}

func TestMessagesOverTheSocketAreLoggedWithTheirUser(t *testing.T) {
	p, log := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	c := admin.Dial(s.Path())
	got := make(chan *bus.Msg, 1)
	_, err := p.Bus.Subscribe(t.Context(), "order.made", func(_ context.Context, m *bus.Msg) error { got <- m; return nil }, bus.Group("tills"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Bus.Respond(t.Context(), "stock.*", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		if m.Subject == "stock.lost" {
			return nil, &bus.RemoteError{Reason: "stock.unknown", Message: "no such product"}
		}
		return append([]byte("three of "), m.Data...), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte{0xff}, 900<<10)
	for _, data := range []admin.Data{{JSON: json.RawMessage(`{"id":1}`)}, {Text: "words"}, {Binary: big}, {}} {
		err := c.Publish(t.Context(), admin.Message{Subject: "order.made", Headers: bus.Headers{"Shop": {"north", "south"}}, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		if m := <-got; !bytes.Equal(m.Data, data.Bytes()) || !slices.Equal(m.Header["Shop"], []string{"north", "south"}) {
			t.Errorf("%.40q arrived with %v", m.Data, m.Header)
		}
	}
	reply, err := c.Request(t.Context(), admin.Message{Subject: "stock.lamp", Data: admin.Data{Text: "lamp"}})
	if err != nil || reply.Text != "three of lamp" {
		t.Errorf("the answer: %+v, %v", reply, err)
	}
	if text := log.String(); !strings.Contains(text, `"admin: event published" subject=order.made bytes=8`) || !strings.Contains(text, "by.uid=") || !strings.Contains(text, "admin: request made") {
		t.Errorf("logged:\n%s", text)
	}
	for _, x := range []struct {
		status int
		code   string
		m      admin.Message
	}{
		{http.StatusBadGateway, "stock.unknown", admin.Message{Subject: "stock.lost"}},
		{http.StatusBadGateway, "bus.no_responders", admin.Message{Subject: "nobody.there"}},
		{http.StatusBadRequest, "bus.bad_subject", admin.Message{Subject: "order.*"}},
		{http.StatusBadRequest, "bus.bad_header", admin.Message{Subject: "stock.lamp", Headers: bus.Headers{"Bus-Own": {"x"}}}},
		{http.StatusBadRequest, "request.invalid", admin.Message{Subject: "stock.lamp", Timeout: "soon"}},
		{http.StatusBadRequest, "request.invalid", admin.Message{Subject: "stock.lamp", Data: admin.Data{Text: "a", Binary: []byte("b")}}},
		{http.StatusRequestEntityTooLarge, "bus.too_large", admin.Message{Subject: "stock.lamp", Data: admin.Data{Binary: make([]byte, 1<<20+1)}}},
		{http.StatusRequestEntityTooLarge, "bus.too_large", admin.Message{Subject: "stock.lamp", Data: admin.Data{Text: strings.Repeat("x", 3<<20)}}},
		{http.StatusRequestEntityTooLarge, "bus.too_large", admin.Message{Subject: "stock.lamp", Data: admin.Data{Text: strings.Repeat("x", 8<<20)}}},
	} {
		_, err := c.Request(t.Context(), x.m)
		if no, ok := errors.AsType[*admin.Error](err); !ok || no.Code() != x.code || no.Status != x.status {
			t.Errorf("%s: %v, want %d %s", x.m.Subject, err, x.status, x.code)
		}
	}
	for _, line := range []string{"subject=stock.lamp answered=true", "subject=stock.lost answered=true", "subject=nobody.there answered=false"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("%q is not in the log:\n%s", line, log.String())
		}
	}
	var messages admin.Messages
	if err := c.Get(t.Context(), "/bus", &messages); err != nil || messages.Scope != "process" || messages.Driver != "memory" || messages.State != bus.StateConnected || messages.Published != 4 || len(messages.Subs) != 2 {
		t.Errorf("the bus: %+v, %v", messages, err)
	}
	topics, err := c.Topics(t.Context())
	if got := fmt.Sprint(topics); err != nil || got != "[{order.made false 1 [tills] 4 4 0 0 0 0} {stock.* true 1 [responders] 2 2 1 0 0 0}]" {
		t.Errorf("the topics: %s, %v", got, err)
	}
}

func TestRequestMayTakeLongerThanReadingOne(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	asked := make(chan struct{})
	_, err := p.Bus.Respond(t.Context(), "slow", func(context.Context, *bus.Msg) ([]byte, error) {
		<-asked // an answer at the end of the request's time may still come first
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.Dial(s.Path()).Request(t.Context(), admin.Message{Subject: "slow", Timeout: "30ms"})
	close(asked)
	if no, ok := errors.AsType[*admin.Error](err); !ok || no.Code() != "bus.timeout" || no.Status != http.StatusGatewayTimeout {
		t.Errorf("got %v", err)
	}
}
