package bustest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/suite"
)

var messageCases = []testCase{
	{rule: "S9", claim: "a kept message does not change", run: keptMessages},
	{rule: "S9", claim: "the subscriptions of a process share one copy of the data", run: sharedData},
	{rule: "S9", claim: "a handler that changes the data is reported if data is checked", run: changedData},
	{rule: "S16", claim: "headers arrive unchanged", run: headersArrive},
	{rule: "S16", claim: "answers carry headers", run: answerHeaders},
	{rule: "S16", claim: "bad headers are refused before the driver is called", run: badHeaders},
	{rule: "S16", claim: "headers at the bounds are accepted, larger ones are refused", run: headerBounds},
	{rule: "S16", claim: "trace and baggage travel from handler to handler", run: traceTravels},
	{rule: "S17", claim: "the largest message is accepted, one byte more is refused, and the bus continues", run: largest},
	{rule: "S17", claim: "an answer that is too large is an error of the responder", run: largeAnswer},
	{rule: "S18", claim: "nil and empty data arrive empty, not nil", run: emptyData},
	{rule: "S18", claim: "all bytes arrive", run: allBytes},
	{rule: "S24", claim: "a message that expires before its handler starts is dropped and counted", run: expires},
	{rule: "S24", claim: "a message that has not expired is handled, and its handler has the deadline", run: notExpired},
}

func keptMessages(e *env) {
	a, b := e.pair()
	listening := []*inbox{b.listen("x.*"), a.listen("x.*")} // in another process, and in its own
	n := suite.Scaled(500)
	for i := range n {
		a.publish(fmt.Sprint("x.", i), strings.Repeat(fmt.Sprint(i, " "), 50), bus.Header("n", fmt.Sprint(i)))
	}
	a.flush()
	e.drain(listening...)
	for _, in := range listening {
		for i, m := range in.all() {
			want := strings.Repeat(fmt.Sprint(i, " "), 50)
			e.Want(m.Subject == fmt.Sprint("x.", i) && string(m.Data) == want && m.Header.Get("n") == fmt.Sprint(i), "message %d has become %s %.40q %v", i, m.Subject, m.Data, m.Header)
			e.Want(cap(m.Data) == len(m.Data) || i > 0, "appending to the data of a message writes into memory of others")
		}
	}
}

// sharedData has subscriptions to one pattern: a backend may send a message once for
// each pattern.
func sharedData(e *env) {
	a, b := e.pair()
	boxes := map[*process][]*inbox{}
	for _, p := range []*process{a, b} {
		boxes[p] = append(boxes[p], p.listen("x.*"), p.listen("x.*"), p.listen("x.*"))
	}
	a.publish("x.y", "data", bus.Header("k", "v"))
	a.publish("x.y", strings.Repeat("data", 1000))
	for _, same := range boxes {
		for _, in := range same {
			in.waits(2)
		}
		for i, m := range same[0].all() {
			for _, in := range same[1:] {
				e.Want(&in.all()[i].Data[0] == &m.Data[0], "two subscriptions of a process have copies of message %d", i)
			}
		}
	}
}

func changedData(e *env) {
	p := e.process(func(c *bus.Config) { c.CheckData = true })
	p.subscribe("x", func(_ context.Context, m *bus.Msg) error { m.Data[0] = 'X'; return nil }, bus.Name("rude"))
	p.publish("x", "data")
	e.Soon("it is reported", func() bool {
		reported := eventsOf[bus.HandlerFailed](p)
		return len(reported) == 1 && reported[0].Name == "rude"
	})
}

func headersArrive(e *env) {
	a, b := e.pair()
	in := b.listen("x")
	var asked bus.Headers
	b.respond("x", func(_ context.Context, m *bus.Msg) ([]byte, error) { asked = m.Header; return nil, nil })
	want := oddHeader()
	var opts []bus.PubOption
	for _, key := range want.Keys() {
		for _, v := range want[key] {
			opts = append(opts, bus.Header(key, v))
		}
	}
	a.publish("x", "", append(opts, bus.ID("id-1"))...)
	in.wants("")
	m := in.all()[0]
	e.Want(m.ID() == "id-1", "the id is %q", m.ID())
	e.sameHeader(m.Header, want)
	_, err := a.Request(e.Ctx, "x", nil, opts...)
	e.Must(err, "request")
	e.sameHeader(asked, want)
	a.publish("x", "none")
	in.wants("", "none")
	e.Want(len(in.all()[1].Header) == 0, "a message without headers has %v", in.all()[1].Header)
}

// oddHeader has every kind of key and value that is allowed.
func oddHeader() bus.Headers {
	return bus.Headers{
		"Key": {"1"}, "key": {"2"}, "KEY": {"3"}, "multi": {"b", "a", "b", ""}, "empty": {""}, "a!#$%&'*+-.^_`|~1": {"odd"},
		"utf8": {"ключ 鍵 🔑"}, "inner": {"a  b\tc"}, "colon": {"a: b: c"}, "Content-Type": {"text/plain"}, "status": {"503"}, "Status": {"503"},
	}
}

// replyHeader adds all of h to the answer.
func replyHeader(ctx context.Context, h bus.Headers) error {
	for _, key := range h.Keys() {
		for _, v := range h[key] {
			if err := bus.ReplyHeader(ctx, key, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func answerHeaders(e *env) {
	a, b := e.pair()
	want := oddHeader()
	b.respond("one", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		for _, key := range []string{"", "a b", "Bus-Error", "Nats-x"} {
			if err := bus.ReplyHeader(ctx, key, "v"); !errors.Is(err, bus.ErrBadHeader) {
				e.Report("reply header %q: %v", key, err)
			}
		}
		if err := bus.ReplyHeader(ctx, "big", strings.Repeat("v", 8<<10)); !errors.Is(err, bus.ErrBadHeader) {
			e.Report("a reply header that is too large: %v", err)
		}
		return m.Data, replyHeader(ctx, want)
	})
	for _, data := range []string{"", "data"} {
		m, err := a.Request(e.Ctx, "one", []byte(data))
		e.Must(err, "request")
		e.Want(string(m.Data) == data, "the answer is %q, want %q", m.Data, data)
		e.sameHeader(m.Header, want)
	}
	b.respond("x", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		for i := range 3 {
			if err := errors.Join(bus.ReplyHeader(ctx, "n", fmt.Sprint(i)), m.Reply(ctx, nil)); err != nil {
				e.Report("reply: %w", err)
			}
		}
		return nil, bus.ErrEnd
	})
	n := 0
	for m, err := range a.RequestMany(e.Ctx, "x", nil) {
		e.Must(err, "an answer")
		n++
		e.Want(slices.Equal(m.Header.Values("n"), numbers(0, n-1)), "answer %d has the header %q", n, m.Header)
	}
	e.Want(n == 3, "got %d answers", n)
	b.respond("none", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil })
	m, err := a.Request(e.Ctx, "none", nil)
	e.Must(err, "request")
	e.Want(len(m.Header) == 0, "an answer without a header has %q", m.Header)
	b.respond("status", func(ctx context.Context, _ *bus.Msg) ([]byte, error) {
		return nil, bus.ReplyHeader(ctx, "Status", "503")
	})
	m, err = a.Request(e.Ctx, "status", nil) // a NATS server reports a missing responder in this way
	e.Must(err, "request that is answered by a status alone")
	e.sameHeader(m.Header, bus.Headers{"Status": {"503"}})
	e.Is(bus.ReplyHeader(e.Ctx, "k", "v"), bus.ErrInvalid, "outside a responder")
}

func (e *env) sameHeader(got, want bus.Headers) {
	got = maps.Clone(got)
	delete(got, bus.KeyID)
	e.Want(maps.EqualFunc(got, want, slices.Equal[[]string]), "the header is\n%q, want\n%q", got, want)
}

func badHeaders(e *env) {
	a, b := e.pair()
	before := a.calls.sum()
	for name, o := range map[string]bus.PubOption{
		"empty key": bus.Header("", "v"), "space": bus.Header("a b", "v"), "colon": bus.Header("a:b", "v"), "key with a line": bus.Header("a\r\nb", "v"),
		"key not ASCII": bus.Header("ü", "v"), "CR": bus.Header("k", "a\rb"), "LF": bus.Header("k", "a\nb"), "injection": bus.Header("k", "v\r\nother: w"),
		"NUL": bus.Header("k", "a\x00b"), "leading space": bus.Header("k", " v"), "trailing space": bus.Header("k", "v "), "trailing tab": bus.Header("k", "v\t"),
		"only space": bus.Header("k", " "), "not UTF-8": bus.Header("k", "\xff"), "id": bus.ID("a\nb"),
		"reserved": bus.Header("Bus-Hops", "1"), "reserved, small": bus.Header("bus-x", "1"), "of NATS": bus.Header("Nats-Msg-Id", "1"), "of NATS, big": bus.Header("NATS-x", "1"),
	} {
		_, err := a.Request(e.Ctx, "x", nil, o)
		for verb, err := range map[string]error{"publish": a.Publish(e.Ctx, "x", nil, o), "request": err} {
			e.Is(err, bus.ErrBadHeader, "%s with %s", verb, name)
			e.hasCode(err, "bus.bad_header")
		}
	}
	e.Want(a.calls.sum() == before, "the driver was asked %d times", a.calls.sum()-before)
	e.works(a, b)
}

func headerBounds(e *env) {
	a, b := e.pair()
	in := b.listen("x")
	var opts []bus.PubOption
	for i := range 64 {
		opts = append(opts, bus.Header(fmt.Sprint("k", i), "v"))
	}
	a.publish("x", "64 keys", opts...)
	e.Is(a.Publish(e.Ctx, "x", nil, append(opts, bus.Header("k64", "v"))...), bus.ErrBadHeader, "65 keys")
	a.publish("x", "8 KiB", bus.Header("k", strings.Repeat("v", 8<<10-1)))
	e.Is(a.Publish(e.Ctx, "x", nil, bus.Header("k", strings.Repeat("v", 8<<10))), bus.ErrBadHeader, "8 KiB and a byte")
	in.wants("64 keys", "8 KiB")
	e.Want(len(in.all()[0].Header) == 64 && len(in.all()[1].Header.Get("k")) == 8<<10-1, "the headers are not complete")
}

func traceTravels(e *env) {
	a, b := e.pair()
	trace := []bus.PubOption{
		bus.Header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		bus.Header("tracestate", "a=1,b=2"), bus.Header("baggage", "user=42"),
	}
	b.respond("ask", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		return []byte(m.Header.Get("traceparent") + " " + m.Header.Get("baggage")), nil
	})
	second, hand := a.listen("second"), e.gate()
	b.subscribe("first", func(ctx context.Context, _ *bus.Msg) error {
		defer hand.open()
		if err := b.Publish(ctx, "second", nil); err != nil {
			e.Report("publish: %w", err)
		}
		if got, err := b.Request(ctx, "ask", nil); err != nil || !strings.HasPrefix(string(got.Data), "00-0af7") || !strings.HasSuffix(string(got.Data), " user=42") {
			e.Report("the request carries %v, %v", got, err)
		}
		return nil
	})
	a.publish("first", "", trace...)
	e.Await(hand.c, "the first is handled")
	second.wants("")
	e.sameHeader(second.all()[0].Header, bus.Headers{
		"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "tracestate": {"a=1,b=2"}, "baggage": {"user=42"},
	})
}

// fits is how much data a message without headers may have.
func (e *env) fits(p *process) int { return p.Info().MaxPayload }

func largest(e *env) {
	a, b := e.pair()
	in := b.listen("x")
	most := e.fits(a)
	e.Want(most == 1<<20, "the limit is %d by default, want 1 MiB on every driver", most)
	data := make([]byte, most+1)
	e.Must(a.Publish(e.Ctx, "x", data[:most]), "the largest")
	in.waits(1)
	e.Want(len(in.all()[0].Data) == most, "%d of %d bytes have arrived", len(in.all()[0].Data), most)
	before := a.calls.sum()
	_, err := a.Request(e.Ctx, "x", data)
	for verb, err := range map[string]error{
		"publish": a.Publish(e.Ctx, "x", data), "request": err, "with a header": a.Publish(e.Ctx, "x", data[:most-5], bus.Header("k", "v")),
	} {
		var large *bus.TooLargeError
		e.Want(errors.As(err, &large) && large.Limit == most && large.Size > most && large.Subject == "x", "%s: got %#v", verb, err)
		e.Is(err, bus.ErrTooLarge, "%s", verb)
		e.hasCode(err, "bus.too_large")
	}
	e.Want(a.calls.sum() == before, "the driver was asked %d times", a.calls.sum()-before)
	e.works(a, b)
	e.works(b, a)
}

func largeAnswer(e *env) {
	a, b := e.pair()
	most := e.fits(b)
	b.respond("x", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		return make([]byte, most+len(m.Data)), nil
	})
	m, err := a.Request(e.Ctx, "x", nil)
	e.Must(err, "the largest answer")
	e.Want(len(m.Data) == most, "%d bytes came back", len(m.Data))
	_, err = a.Request(e.Ctx, "x", []byte("1"))
	e.hasCode(err, "bus.too_large")
	e.Want(errors.As(err, new(*bus.RemoteError)), "got %v", err)
	e.works(a, b)
}

func emptyData(e *env) {
	a, b := e.pair()
	in := b.listen("x")
	b.respond("nil", func(_ context.Context, m *bus.Msg) ([]byte, error) {
		if m.Data == nil {
			e.Report("the data of a request are nil")
		}
		return nil, nil
	})
	for _, data := range [][]byte{nil, {}} {
		e.Must(a.Publish(e.Ctx, "x", data), "publish")
		e.Must(a.Publish(e.Ctx, "x", data, bus.Header("k", "v")), "publish with a header")
		m, err := a.Request(e.Ctx, "nil", data)
		e.Must(err, "request")
		e.Want(m.Data != nil && len(m.Data) == 0, "the answer has %#v", m.Data)
	}
	a.flush()
	e.drain(in)
	in.has("", "", "", "")
	for _, m := range in.all() {
		e.Want(m.Data != nil, "the data are nil")
	}
}

func allBytes(e *env) {
	a, b := e.pair()
	var data []byte
	for i := range 256 {
		data = append(data, byte(i))
	}
	text := string(data) + "\r\n+OK\r\nMSG x 1 1\r\nx\r\n"
	in := b.listen("x")
	b.echo("x")
	a.publish("x", text)
	a.publish("x", text, bus.Header("k", "v"))
	in.wants(text, text)
	e.Want(a.request("x", text) == text, "the answer is another")
}

func expires(e *env) {
	a, b := e.pair()
	g := e.gate()
	in := &inbox{e: e}
	in.Sub = b.subscribe("x", func(ctx context.Context, m *bus.Msg) error {
		if string(m.Data) == "first" {
			g.pass(ctx)
		}
		return in.handle(ctx, m)
	})
	a.publish("x", "first")
	a.publish("x", "short", bus.Expires(e.Units(1)))
	a.publish("x", "long", bus.Expires(e.Patience()))
	a.flush()
	e.Soon("they have arrived", func() bool { return in.Stats().Received == 3 })
	e.Pass(2)
	g.open()
	e.drain(in)
	in.has("first", "long")
	e.Want(in.Stats().Expired == 1, "%d are counted as expired", in.Stats().Expired)
	e.Is(a.Publish(e.Ctx, "x", nil, bus.Expires(0)), bus.ErrInvalid, "an expiry of nothing")
	e.Is(a.Publish(e.Ctx, "x", nil, bus.Expires(-1)), bus.ErrInvalid, "an expiry in the past")
}

func notExpired(e *env) {
	a, b := e.pair()
	over, deadline := e.gate(), make(chan time.Time, 1)
	b.subscribe("x", func(ctx context.Context, _ *bus.Msg) error {
		defer over.open()
		at, _ := ctx.Deadline()
		deadline <- at
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				e.Report("the handler's context has ended with %v", ctx.Err())
			}
		case <-e.Ctx.Done():
		}
		return nil
	})
	expires := time.Now().Add(e.Units(5))
	a.publish("x", "", bus.Expires(e.Units(5)))
	late := receive(e, deadline, "the handler begins").Sub(expires)
	e.Want(late >= -e.Unit/10 && (late <= e.Unit/10 || !e.h.FakeTime && late <= e.Patience()), "the handler's context has a deadline %v after the one of the message", late)
	e.Await(over.c, "the handler's context ends when the message expires")
}
