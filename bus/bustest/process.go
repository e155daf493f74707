package bustest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
)

// process is a Bus of the case, with the counted calls of its driver and the
// events of its observer.
type process struct {
	*bus.Bus
	e        *env
	driver   driver.Driver // as Open has returned it
	calls    *calls
	recorder *recorder
	cut      atomic.Bool // by Crash: its end is not looked at
}

// process opens one more process, with the zero Config as setup changes it.
func (e *env) process(setup ...func(*bus.Config)) *process {
	d, err := e.h.Open()
	e.Must(err, "open the driver")
	p := &process{e: e, driver: d, calls: &calls{}, recorder: &recorder{}}
	c := bus.Config{Observer: p.recorder}
	for _, f := range setup {
		f(&c)
	}
	p.Bus, err = bus.New(counted{d, p.calls}, c)
	e.Must(err, "new bus")
	e.AtEnd(p.close)
	return p
}

// pair opens two processes, or one that is both where the driver reaches no
// further.
func (e *env) pair() (a, b *process) {
	a = e.process()
	if !e.remote() {
		return a, a
	}
	return a, e.process()
}

// close ends the process at the end of the case: nothing may be in its way, and
// its numbers have to add up.
func (p *process) close() {
	if err := p.Close(); err != nil && !p.cut.Load() {
		p.e.Report("close at the end of the case: %w", err)
	}
	st := p.Stats()
	if t := st.Total; t.Received != t.Handled+t.Dropped+t.Expired+t.Discarded || t.Pending != 0 {
		p.e.Report("the numbers do not add up: %+v", t)
	}
	if st.InFlight != 0 || len(st.Subs) != 0 {
		p.e.Report("after Close there are %d requests in flight and %d subscriptions", st.InFlight, len(st.Subs))
	}
}

func (p *process) publish(subject, data string, opts ...bus.PubOption) {
	p.e.Must(p.Publish(p.e.Ctx, subject, []byte(data), opts...), "publish")
}

func (p *process) flush() { p.e.Must(p.Flush(p.e.Ctx), "flush") }

// flushAgain flushes after an outage under load: a Flush may report what was
// lost then, and the next one has nothing to report.
func (p *process) flushAgain() {
	if err := p.Flush(p.e.Ctx); err != nil {
		p.e.Is(err, bus.ErrDisconnected, "the flush that reports a loss")
		p.e.Want(p.Stats().Lost > 0, "flush reports %v, and no loss is counted", err)
		p.flush()
	}
}

func (p *process) subscribe(pattern string, h bus.Handler, opts ...bus.SubOption) *bus.Sub {
	s, err := p.Subscribe(p.e.Ctx, pattern, h, opts...)
	p.e.Must(err, "subscribe")
	return s
}

func (p *process) respond(pattern string, r bus.Responder, opts ...bus.SubOption) *bus.Sub {
	s, err := p.Respond(p.e.Ctx, pattern, r, opts...)
	p.e.Must(err, "respond")
	return s
}

// echo responds with the data of the request.
func (p *process) echo(pattern string) *bus.Sub {
	return p.respond(pattern, func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil })
}

func (p *process) request(subject, data string) string {
	m, err := p.Request(p.e.Ctx, subject, []byte(data))
	p.e.Must(err, "request")
	return string(m.Data)
}

// listen subscribes and collects.
func (p *process) listen(pattern string, opts ...bus.SubOption) *inbox {
	in := &inbox{e: p.e}
	in.Sub = p.subscribe(pattern, in.handle, opts...)
	return in
}

// roomFor lets n small messages wait, so that a case loses none at any count.
func roomFor(n int) bus.SubOption { return bus.Buffer(max(n, bus.DefaultBuffer), 1<<30) }

// drain drains subscriptions: all that was routed to them was handled then.
func (e *env) drain(subs ...*inbox) {
	for _, s := range subs {
		ctx, cancel := e.Bounded()
		e.Must(s.Drain(ctx), "drain %s", s.Name())
		cancel()
	}
}

// works fails the case unless events and requests come through.
func (e *env) works(from, to *process) {
	in := to.listen("works.event")
	s := to.echo("works.request")
	from.publish("works.event", "e")
	in.wants("e")
	e.Want(from.request("works.request", "r") == "r", "the answer was not that to the request")
	in.Stop()
	s.Stop()
}

// inbox is a subscription and the messages of its handler.
type inbox struct {
	*bus.Sub
	e *env

	mu   sync.Mutex // guards msgs
	msgs []*bus.Msg
}

func (in *inbox) handle(_ context.Context, m *bus.Msg) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.msgs = append(in.msgs, m)
	return nil
}

func (in *inbox) all() []*bus.Msg {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.msgs)
}

func (in *inbox) len() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.msgs)
}

func (in *inbox) data() (data []string) {
	for _, m := range in.all() {
		data = append(data, string(m.Data))
	}
	return data
}

// waits until n messages have been handled, as long as some come.
func (in *inbox) waits(n int) {
	for before := -1; before < in.len(); {
		before = in.len()
		if in.comes(n) {
			return
		}
	}
	in.e.Fail("%s: %d of %d messages have arrived", in.Name(), in.len(), n)
}

func (in *inbox) comes(n int) bool {
	return in.e.Comes(in.e.Patience(), func() bool { return in.len() >= n })
}

// wants waits for exactly these messages, in this order. That no others come is
// for drain to find out.
func (in *inbox) wants(data ...string) {
	in.waits(len(data))
	in.has(data...)
}

// has fails the case unless these are all messages, in this order.
func (in *inbox) has(data ...string) {
	got := in.data()
	in.e.Want(slices.Equal(got, data), "%s: got %.200q, want %.200q", in.Name(), got, data)
}

// gate keeps handlers until it is opened, at the latest when the case is over.
type gate struct {
	c    chan struct{}
	once sync.Once
}

func (e *env) gate() *gate {
	g := &gate{c: make(chan struct{})}
	e.AtEnd(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.c) }) }

// pass waits until the gate is open, or the handler has to end.
func (g *gate) pass(ctx context.Context) {
	select {
	case <-g.c:
	case <-ctx.Done():
	}
}

// recorder records the events of an observer.
type recorder struct {
	mu     sync.Mutex // guards events
	events []bus.Event
}

// Observe implements [bus.Observer].
func (r *recorder) Observe(e bus.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// eventsOf returns the events of a type.
func eventsOf[E bus.Event](p *process) (of []E) {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	for _, e := range p.recorder.events {
		if e, ok := e.(E); ok {
			of = append(of, e)
		}
	}
	return of
}

// calls counts the calls of a driver.
type calls struct{ publish, request, subscribe, answer atomic.Int64 }

func (c *calls) sum() int64 { return c.publish.Load() + c.request.Load() + c.subscribe.Load() }

// counted counts the calls of a driver.
type counted struct {
	driver.Driver
	calls *calls
}

func (c counted) Publish(ctx context.Context, m driver.Message) error {
	c.calls.publish.Add(1)
	return c.Driver.Publish(ctx, m)
}

func (c counted) Request(ctx context.Context, m driver.Message) error {
	c.calls.request.Add(1)
	return c.Driver.Request(ctx, m)
}

func (c counted) Answer(ctx context.Context, request, answer driver.Message) error {
	c.calls.answer.Add(1)
	return c.Driver.Answer(ctx, request, answer)
}

func (c counted) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	c.calls.subscribe.Add(1)
	return c.Driver.Subscribe(ctx, s)
}
