package boot

import (
	"context"
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
)

// messageOption declares a function that handles messages.
type messageOption struct {
	fn      function
	gap     *function // runs where messages were lost; may be nil
	pattern string
	options []bus.SubOption
}

func (messageOption) option() {}

// SubscribeOption changes a declared subscription: a [bus.SubOption], or
// [OnGap].
type SubscribeOption interface{ SubOption() bus.SubOption }

// gapOption declares a function that runs where messages were lost.
type gapOption struct{ fn function }

// SubOption implements [SubscribeOption].
func (gapOption) SubOption() bus.SubOption { return bus.SubOption{} }

// OnGap is [bus.OnGap] for a function that takes provided values, a *Ctx of its
// app and the number of lost messages.
func OnGap(fn any) SubscribeOption {
	f := newFunction("OnGap", fn)
	f.message, f.payload = true, reflect.TypeFor[int]()
	return gapOption{f}
}

// Subscribe calls fn with every event whose subject matches pattern. The
// function takes provided values, a *Ctx of its app and either the payload or
// the *bus.Msg itself.
func Subscribe(pattern string, payload reflect.Type, fn any, options ...SubscribeOption) Option {
	f := newFunction("Subscribe", fn)
	f.message, f.payload = true, payload
	m := messageOption{fn: f, pattern: pattern}
	for _, o := range options {
		if g, ok := o.(gapOption); ok {
			m.gap = &g.fn
			continue
		}
		m.options = append(m.options, o.SubOption())
	}
	return m
}

// Respond calls fn to respond to the requests whose subject matches pattern.
// The function takes provided values, a *Ctx of its app and the payload of the
// request, and returns the response and an error.
func Respond(pattern string, fn any, options ...bus.SubOption) Option {
	f := newFunction("Respond", fn)
	f.message = true
	return messageOption{fn: f, pattern: pattern, options: options}
}

// checkMessage returns an error if the function does not have the shape of a
// message handler.
func (f function) checkMessage() error {
	says := "func(provided values…, *mega.Ctx, payload) error"
	switch f.option {
	case "Respond":
		says = "func(provided values…, *mega.Ctx, request) (answer, error)"
	case "OnGap":
		says = "func(provided values…, *mega.Ctx, int) error"
	}
	t := f.value.Type()
	n := t.NumIn()
	switch {
	case t.IsVariadic():
		return f.wrong("it is variadic", says)
	case n < 2 || t.In(n-2) != reflect.TypeFor[*megactx.Ctx]():
		return f.wrong("its last parameters are not a *mega.Ctx and what the message carries", says)
	case f.option == "OnGap" && t.In(n-1) != f.payload:
		return f.wrong("it is given the number of lost messages, an int", says)
	case f.payload != nil && t.In(n-1) != f.payload && t.In(n-1) != messageType():
		return f.wrong(fmt.Sprintf("its topic carries a %v", f.payload), says)
	case f.option != "Respond" && (t.NumOut() != 1 || !isError(t.Out(0))):
		return f.wrong("it does not return an error", says)
	case f.option == "Respond" && (t.NumOut() != 2 || !isError(t.Out(1))):
		return f.wrong("it does not return an answer and an error", says)
	}
	for i := range n - 2 {
		if isArgument(t.In(i)) {
			return f.wrong(fmt.Sprintf("%v is not a provided value", t.In(i)), says)
		}
	}
	return nil
}

func messageType() reflect.Type { return reflect.TypeFor[*bus.Msg]() }

// bindMessages gives the functions their values and their place in the
// lifecycle: after the OnStart hooks, and before the program serves.
func (b *booting) bindMessages(messages []messageOption) (options []fx.Option) {
	for _, m := range messages {
		var have, gap bound
		options = append(options, fx.Invoke(m.fn.invocation(func(f bound) { have = f })))
		if m.gap != nil {
			options = append(options, fx.Invoke(m.gap.invocation(func(f bound) { gap = f })))
		}
		options = append(options, fx.Invoke(func(host *megactx.Host) { b.listeners = append(b.listeners, m.step(have, gap, host)) }))
	}
	return options
}

func (m messageOption) step(f, gap bound, host *megactx.Host) step {
	name := m.fn.name()
	options := append([]bus.SubOption{bus.Name(name), bus.Site(m.fn.site)}, m.options...)
	if m.gap != nil {
		options = append(options, gap.onGap(host))
	}
	d := &declared{name: name, log: host.Log, make: func(ctx context.Context, more ...bus.SubOption) (*bus.Sub, error) {
		return m.subscribe(ctx, f, host, append(options[:len(options):len(options)], more...))
	}}
	return step{
		start: hook{name: "subscription " + name, budget: hookBudget, run: func(ctx context.Context) error {
			return d.start(context.WithoutCancel(ctx))
		}},
		end:   hook{name: "subscription " + name, budget: longBudget, run: d.drain},
		phase: working,
		from:  placeOf(m.fn, host),
	}
}

// subscribe makes a subscription that lasts as long as the program runs.
func (m messageOption) subscribe(ctx context.Context, f bound, host *megactx.Host, options []bus.SubOption) (*bus.Sub, error) {
	if m.fn.option == "Respond" {
		return host.Bus.RespondValue(ctx, m.pattern, host.Answer(func(c *megactx.Ctx, msg *bus.Msg) (any, error) {
			out, err := f.receive(c, msg)
			if err != nil {
				return nil, err
			}
			return out[0].Interface(), errorOf(out)
		}), options...)
	}
	return host.Bus.Subscribe(ctx, m.pattern, host.Handle(func(c *megactx.Ctx, msg *bus.Msg) error {
		out, err := f.receive(c, msg)
		if err != nil {
			return err
		}
		return errorOf(out)
	}), options...)
}

// onGap returns the function as an option of the bus.
func (b bound) onGap(host *megactx.Host) bus.SubOption {
	return bus.OnGap(func(ctx context.Context, missed int) error {
		return errorOf(b.call(host.New(ctx), missed))
	})
}

// receive calls the function with the message or with its decoded payload.
func (b bound) receive(c *megactx.Ctx, m *bus.Msg) ([]reflect.Value, error) {
	t := b.value.Type()
	takes := t.In(t.NumIn() - 1)
	if takes == messageType() {
		return b.call(c, m), nil
	}
	payload := reflect.New(takes)
	if err := m.Decode(payload.Interface()); err != nil {
		return nil, err
	}
	return b.call(c, payload.Elem().Interface()), nil
}
