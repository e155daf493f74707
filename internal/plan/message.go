package plan

import (
	"fmt"
	"reflect"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
)

// Message declares a function that handles messages.
type Message struct {
	Fn      Function
	Gap     *Function // runs where messages were lost; may be nil
	Pattern string
	Options []bus.SubOption
}

// SubscribeOption changes a declared subscription: a [bus.SubOption], or
// [OnGap].
type SubscribeOption interface{ SubOption() bus.SubOption }

// gapOption declares a function that runs where messages were lost.
type gapOption struct{ fn Function }

// SubOption implements [SubscribeOption].
func (gapOption) SubOption() bus.SubOption { return bus.SubOption{} }

// OnGap returns the option mega.OnGap.
func OnGap(fn any) SubscribeOption {
	f := newFunction("OnGap", fn)
	f.message, f.payload = true, reflect.TypeFor[int]()
	return gapOption{f}
}

// Subscribe returns the option mega.Subscribe.
func Subscribe(pattern string, payload reflect.Type, fn any, options ...SubscribeOption) Option {
	f := newFunction("Subscribe", fn)
	f.message, f.payload = true, payload
	m := Message{Fn: f, Pattern: pattern}
	for _, o := range options {
		switch o := o.(type) {
		case nil:
		case gapOption:
			m.Gap = &o.fn
		default:
			m.Options = append(m.Options, o.SubOption())
		}
	}
	return m
}

// Respond returns the option mega.Respond.
func Respond(pattern string, fn any, options ...bus.SubOption) Option {
	f := newFunction("Respond", fn)
	f.message = true
	return Message{Fn: f, Pattern: pattern, Options: options}
}

// checkMessages returns an error for a pattern or an option that every bus refuses,
// and for a second function with one pattern and one group: each message would reach
// only one of the two.
func (p *Part) checkMessages() error {
	type member struct{ option, pattern, group string }
	sites := map[member]string{}
	for _, m := range p.Messages {
		if err := bus.CheckPattern(m.Pattern); err != nil {
			return m.Fn.wrong(err.Error(), "a subject such as order.created, or a pattern such as order.*")
		}
		group, err := bus.CheckOptions(m.Fn.Option == "Respond", m.Options...)
		if err != nil {
			return m.Fn.wrong(err.Error(), "options that the bus allows")
		}
		id := member{m.Fn.Option, m.Pattern, group}
		if first, taken := sites[id]; taken && group != "" {
			return m.Fn.wrong(fmt.Sprintf("the group %q has a function for %q, and each message would reach only one of the two", group, m.Pattern),
				"another group, or one function instead of this one and the one at "+first)
		}
		sites[id] = m.Fn.Site
	}
	return nil
}

// checkMessage returns an error if the function does not have the shape of a
// message handler.
func (f Function) checkMessage() error {
	untyped := f.payload == reflect.TypeFor[any]()
	shape := fmt.Sprintf("func(provided values…, *mega.Ctx, %v) error, or the same with *bus.Msg", f.payload)
	switch {
	case f.Option == "Respond":
		shape = "func(provided values…, *mega.Ctx, request) (answer, error)"
	case f.Option == "OnGap":
		shape = "func(provided values…, *mega.Ctx, int) error"
	case untyped:
		shape = "func(provided values…, *mega.Ctx, *bus.Msg) error"
	}
	t := f.Value.Type()
	n := t.NumIn()
	switch {
	case t.IsVariadic():
		return f.wrong("it is variadic", shape)
	case n < 2 || t.In(n-2) != reflect.TypeFor[*megactx.Ctx]():
		return f.wrong("its last parameters are not a *mega.Ctx and what the message carries", shape)
	case f.Option == "OnGap" && t.In(n-1) != f.payload:
		return f.wrong("it is given the number of lost messages, an int", shape)
	case untyped && t.In(n-1) != f.payload && t.In(n-1) != MessageType():
		return f.wrong("its topic carries no type of its own, so the function takes the message", shape)
	case f.payload != nil && t.In(n-1) != f.payload && t.In(n-1) != MessageType():
		return f.wrong(fmt.Sprintf("its topic carries a %v", f.payload), shape)
	case f.Option != "Respond" && (t.NumOut() != 1 || !isError(t.Out(0))):
		return f.wrong("it does not return an error", shape)
	case f.Option == "Respond" && (t.NumOut() != 2 || !isError(t.Out(1))):
		return f.wrong("it does not return an answer and an error", shape)
	}
	for i := range n - 2 {
		if isArgument(t.In(i)) {
			return f.wrong(fmt.Sprintf("%v is not a provided value", t.In(i)), shape)
		}
	}
	return nil
}

// MessageType returns the type of a message that is not decoded.
func MessageType() reflect.Type { return reflect.TypeFor[*bus.Msg]() }
