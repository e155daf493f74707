package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
)

// bindMessages gives the functions their values and their place in the
// lifecycle: after the OnStart hooks, and before the program serves.
func (b *booting) bindMessages(messages []plan.Message) (options []fx.Option) {
	for _, m := range messages {
		var have, gap plan.Bound
		options = append(options, fx.Invoke(m.Fn.Invocation(func(f plan.Bound) { have = f })))
		if m.Gap != nil {
			options = append(options, fx.Invoke(m.Gap.Invocation(func(f plan.Bound) { gap = f })))
		}
		options = append(options, fx.Invoke(func(host *request.Host) {
			b.steps.subscriptions = append(b.steps.subscriptions, b.subscription(m, have, gap, host))
		}))
	}
	return options
}

func (b *booting) subscription(m plan.Message, f, gap plan.Bound, host *request.Host) step {
	name := m.Fn.Name()
	options := append([]bus.SubOption{bus.Name(name), bus.Site(m.Fn.Site)}, m.Options...)
	if m.Gap != nil {
		options = append(options, onGap(gap))
	}
	d := &declared{name: name, log: host.Log, make: func(ctx context.Context, more ...bus.SubOption) (*bus.Sub, error) {
		return subscribe(host.Context(ctx), m, f, host, append(slices.Clip(options), more...)) // for OnGap and a bus.Use
	}}
	b.declared = append(b.declared, d)
	return step{
		start: hook{name: "subscription " + name, budget: hookBudget, run: func(ctx context.Context) error {
			return d.start(context.WithoutCancel(ctx)) // ctx ends with this step
		}},
		end:   hook{name: "subscription " + name, budget: longBudget, run: d.drain},
		phase: working,
		from:  m.Fn.Place(host.App.Name),
	}
}

// subscribe makes a subscription that lasts as long as the program runs.
func subscribe(ctx context.Context, m plan.Message, f plan.Bound, host *request.Host, options []bus.SubOption) (*bus.Sub, error) {
	if m.Fn.Option == "Respond" {
		return host.Bus.RespondValue(ctx, m.Pattern, host.Answer(func(ctx context.Context, msg *bus.Msg) (any, error) {
			out, err := receive(ctx, f, msg)
			if err != nil {
				return nil, err
			}
			return out[0].Interface(), plan.ErrorOf(out)
		}), options...)
	}
	return host.Bus.Subscribe(ctx, m.Pattern, host.Handle(func(ctx context.Context, msg *bus.Msg) error {
		out, err := receive(ctx, f, msg)
		if err != nil {
			return err
		}
		return plan.ErrorOf(out)
	}), options...)
}

// onGap returns the function as an option of the bus.
func onGap(f plan.Bound) bus.SubOption {
	return bus.OnGap(func(ctx context.Context, missed int) error {
		ctx, end := context.WithCancelCause(ctx)
		defer end(megactx.ErrHandlerReturned) // as the context of a handler
		c, _ := megactx.From(ctx)
		return plan.ErrorOf(f.Call(c, missed))
	})
}

// receive calls the function with the message or with its decoded payload.
func receive(ctx context.Context, f plan.Bound, m *bus.Msg) ([]reflect.Value, error) {
	c, _ := megactx.From(ctx)
	t := f.Value.Type()
	takes := t.In(t.NumIn() - 1)
	if takes == plan.MessageType() {
		return f.Call(c, m), nil
	}
	payload := reflect.New(takes)
	if err := m.Decode(payload.Interface()); err != nil {
		return nil, err
	}
	return f.Call(c, payload.Elem().Interface()), nil
}

// Limits of the back-off before a declared subscription is restored.
const (
	firstRenewal = time.Second
	lastRenewal  = time.Minute
)

// declared is a subscription that the program declares. It is restored when its
// policy or a refusal of the backend ended it (S23). A restored subscription
// starts with a gap mark, which stands for the messages that were lost
// meanwhile.
type declared struct {
	name string
	log  *slog.Logger
	make func(ctx context.Context, more ...bus.SubOption) (*bus.Sub, error)

	leave context.CancelFunc // ends the goroutine that runs keep
	kept  chan struct{}      // closed when that goroutine has ended

	mu       sync.Mutex // guards the fields below
	sub      *bus.Sub
	inactive error // why it is not active; nil if it is
}

// checkSubscriptions returns an error that lists the declared subscriptions that
// have ended and are not restored yet.
func (b *booting) checkSubscriptions(context.Context) error {
	var list []string
	for _, d := range b.declared {
		if err := d.whyInactive(); err != nil {
			list = append(list, fmt.Sprintf("subscription %s is not active: %v", d.name, err))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return errors.New(strings.Join(list, "; "))
}

func (d *declared) whyInactive() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inactive
}

func (d *declared) setInactive(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inactive = why
}

// start makes the subscription, which lives until ctx ends, and starts the
// goroutine that restores it.
func (d *declared) start(ctx context.Context) (err error) {
	if d.sub, err = d.make(ctx); err != nil {
		return err
	}
	staying, leave := context.WithCancel(ctx)
	d.leave, d.kept = leave, make(chan struct{})
	go d.keep(ctx, staying)
	return nil
}

// drain stops restoring the subscription, and waits until it has handled its
// queue.
func (d *declared) drain(ctx context.Context) error {
	d.leave()
	<-d.kept
	return d.current().Drain(ctx)
}

func (d *declared) current() *bus.Sub {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sub
}

// keep restores the subscription each time that it ends, until staying ends.
func (d *declared) keep(ctx, staying context.Context) {
	defer close(d.kept)
	pause := firstRenewal
	for {
		began := time.Now()
		select {
		case <-staying.Done():
			return
		case <-d.current().Done():
		}
		why := d.current().Err()
		if !isRenewable(why) {
			return
		}
		d.setInactive(why)
		if time.Since(began) > lastRenewal {
			pause = firstRenewal
		}
		for renewed := false; !renewed; renewed = d.renew(ctx, pause) {
			if !group.Sleep(staying, pause+rand.N(pause/4)) { // the subscriptions of a fleet end together, at an outage
				return
			}
			pause = min(2*pause, lastRenewal)
		}
	}
}

// isRenewable reports whether the policy or the backend ended a subscription,
// and not the end of the bus.
func isRenewable(err error) bool {
	return err != nil && !errors.Is(err, bus.ErrClosed) && !errors.Is(err, bus.ErrDraining) && !errors.Is(err, context.Canceled)
}

// renew tries once to restore the subscription, and reports whether it
// succeeded.
func (d *declared) renew(ctx context.Context, next time.Duration) bool {
	sub, err := d.make(ctx, bus.AfterGap())
	if err != nil {
		d.log.Error("subscription not restored", "subscription", d.name, "again", next, "error", err)
		d.setInactive(err)
		return false
	}
	d.log.Info("subscription restored", "subscription", d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sub, d.inactive = sub, nil
	return true
}
