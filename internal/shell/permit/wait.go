package permit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
)

// closeTime bounds the end of a connection.
const closeTime = 2 * time.Second

// rehearse waits for the order at a limit in memory, which checks the arguments
// before a keeper is started.
func (o *order) rehearse() error {
	l, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		return err
	}
	_, err = o.wait(context.Background(), l)
	if err = errors.Join(err, l.Close(context.Background())); err != nil {
		return o.explain(err)
	}
	return nil
}

// await waits for the permit. A signal ends the wait, which then leaves no ticket.
// Afterwards signals have the effect that they had before.
func await(p shell.Process, o *order) error {
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // such as by nohup
			signal.Notify(signals, s)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var got os.Signal
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case got = <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := o.take(ctx, p)
	signal.Stop(signals)
	cancel()
	<-watched
	if got == nil {
		select {
		case got = <-signals:
		default:
		}
	}
	switch {
	case got != nil:
		return shell.Status(128 + int(got.(syscall.Signal)))
	case err != nil:
		return o.explain(err)
	}
	return nil
}

// take connects to the backend, waits for the permit, and leaves. A permit that
// was granted after the end of ctx is given back.
func (o *order) take(ctx context.Context, p shell.Process) error {
	d, leave, err := o.open(ctx, p)
	if err != nil {
		return err
	}
	l, err := limit.New(d, limit.Config{Identify: func(_ context.Context, h *limit.Holder) { h.App = p.Name }})
	if err != nil {
		return errors.Join(err, d.Close(ctx), leave(ctx))
	}
	permit, err := o.wait(ctx, l)
	if err == nil && ctx.Err() != nil {
		err = permit.Cancel(ctx)
	}
	closing, done := context.WithTimeout(context.Background(), closeTime)
	defer done()
	_ = errors.Join(l.Close(closing), leave(closing)) // nothing is held: nothing depends on it
	return err
}

func (o *order) wait(ctx context.Context, l *limit.Limiter) (*limit.Permit, error) {
	return l.Wait(ctx, o.Key, limit.Limit{Rates: o.Rates}, limit.Cost(o.Cost), limit.MaxWait(o.Wait))
}

// open connects to the backend. leave ends what carries the driver.
func (o *order) open(ctx context.Context, p shell.Process) (d driver.Driver, leave func(context.Context) error, err error) {
	if o.URL != "" {
		d, err = redis.OpenLimit(ctx, redis.Config{URL: o.URL, Key: o.Template, Namespace: o.Namespace})
		return d, func(context.Context) error { return nil }, err
	}
	node, err := o.Join(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	return node.Limits(o.Namespace), node.Close, nil
}

// explain converts an error of the limit to the error of the verb.
func (o *order) explain(err error) error {
	e := &shell.Error{Code: "limit.unavailable", Exit: shell.ExitUnavailable, Text: fmt.Sprintf("Cannot use the limits at %s: %v.", &o.Backend, err)}
	if coded, ok := errors.AsType[interface {
		error
		Code() string
	}](err); ok {
		e.Code = coded.Code()
		if errors.Is(err, limit.ErrInvalid) {
			err = coded // without the call
		}
	}
	switch {
	case errors.Is(err, limit.ErrLimited):
		e.Exit, e.Text = shell.ExitNotAcquired, fmt.Sprintf("Not allowed: %v.", err)
	case errors.Is(err, limit.ErrInvalid), errors.Is(err, limit.ErrUnsupported):
		e.Exit, e.Text = shell.ExitUsage, fmt.Sprintf("Not possible: %s.", strings.TrimPrefix(err.Error(), "limit: "))
	}
	e.Text = mask.Text(e.Text)
	return e
}
