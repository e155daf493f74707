package shell

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/limit/driver"
)

// awaitPermit waits for the permit. A signal ends the wait, and the error is then a
// Status; no ticket is left in the queue. Signals have their previous effect when
// awaitPermit returns.
func awaitPermit(p Process, o *PermitOrder) error {
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
		return Status(128 + int(got.(syscall.Signal)))
	case err != nil:
		return o.explain(err)
	}
	return nil
}

// Permit waits until the units are granted, and leaves nothing in the queue when
// ctx ends.
func Permit(ctx context.Context, p Process, o PermitOrder) error {
	if err := o.check(p.Environ); err != nil {
		return err
	}
	if err := o.take(ctx, p); err != nil {
		return o.explain(err)
	}
	return nil
}

// take connects to the backend, waits for the permit, and disconnects. It returns
// the units of a permit that was granted after the end of ctx.
func (o *PermitOrder) take(ctx context.Context, p Process) error {
	d, leave, err := o.openLimits(ctx, o.recruit(p))
	if err != nil {
		return err
	}
	w := newPermit(o, d, p.Name)
	err = w.wait(ctx)
	if err == nil && ctx.Err() != nil {
		err = w.cancel()
	}
	closing, done := context.WithTimeout(context.Background(), closeTime)
	defer done()
	_ = errors.Join(d.Close(closing), leave(closing)) // nothing is held: nothing depends on it
	return err
}

// openLimits connects to the backend. The caller calls leave after it has closed
// the driver: leave closes the connection that carries it.
func (b *Backend) openLimits(ctx context.Context, recruit func(context.Context) error) (d driver.Driver, leave func(context.Context) error, err error) {
	if b.URL != "" {
		d, err = redis.OpenLimit(ctx, redis.Config{URL: b.URL, Key: b.Template, Namespace: b.Namespace})
		return d, func(context.Context) error { return nil }, err
	}
	node, err := b.join(ctx, recruit)
	if err != nil {
		return nil, nil, err
	}
	return node.Limits(b.Namespace), node.Close, nil
}

// permit is the wait of one command. It does what limit.Wait does for one caller
// without an outage policy. Package limit links net/http, which would enlarge the
// small binary.
type permit struct {
	driver   driver.Driver
	request  driver.Request
	began    time.Time
	deadline time.Time
	last     driver.Answer
	lost     bool // a request had no answer: a copy of it may still arrive
}

func newPermit(o *PermitOrder, d driver.Driver, app string) *permit {
	var ticket [16]byte
	_, _ = rand.Read(ticket[:]) // never fails
	host, _ := os.Hostname()    // for display; an empty one is left out
	now := time.Now()
	return &permit{driver: d, began: now, deadline: now.Add(o.Wait), request: driver.Request{
		Key: o.Key, Rates: o.Rates, Cost: o.Cost, Ticket: base64.RawURLEncoding.EncodeToString(ticket[:]), Seq: 1,
		Waiter: driver.Holder{App: app, Host: host, PID: os.Getpid(), Since: now},
	}}
}

// wait repeats the request until the units are granted, or cannot be granted in
// time (W5, W6).
func (w *permit) wait(ctx context.Context) error {
	for {
		err := w.ask(ctx)
		switch {
		case err != nil:
			w.withdraw()
			return err
		case w.last.Granted:
			return nil
		case w.last.Again == 0: // the driver has withdrawn the request
			if w.lost {
				w.withdraw() // bars the copy
			}
			return w.refused()
		case w.request.MaxWait == 0 || !group.Sleep(ctx, min(w.last.Again, time.Until(w.deadline))): // once more at the deadline
			w.withdraw()
			return w.refused()
		}
	}
}

// askPause is the pause between requests that got no answer.
const askPause = 50 * time.Millisecond

// ask makes the request, and repeats it for at most a second while it gets no
// answer: a request with the same Ticket and Seq is the same request (W9, W11).
func (w *permit) ask(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, driver.CallTimeout)
	defer cancel()
	for first := error(nil); ; {
		w.request.MaxWait = max(time.Until(w.deadline), 0)
		a, err := w.driver.Take(bounded, w.request)
		if err == nil {
			w.last = a
			return nil
		}
		w.lost = true
		if first == nil {
			first = err // a later error may only be the timeout
		}
		if errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnsupported) || !group.Sleep(bounded, askPause) {
			return first
		}
	}
}

// withdraw takes the request out of the queue. If that fails, its ticket expires
// without heartbeats (W7).
func (w *permit) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	_ = w.driver.Withdraw(ctx, w.request)
}

// cancel returns the granted units.
func (w *permit) cancel() error {
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	r := w.request
	return w.driver.Settle(ctx, driver.Settlement{Key: r.Key, Rates: r.Rates, At: w.last.At, Cost: r.Cost})
}

// refused returns the error for a command that is not allowed in time.
func (w *permit) refused() error {
	e := &Error{Code: driver.ErrLimited.Code(), Exit: ExitNotAcquired}
	why := []string{fmt.Sprintf("Not allowed: limit %q", w.request.Key)}
	if waited := time.Since(w.began).Round(time.Millisecond); waited > 0 {
		why = append(why, fmt.Sprintf("waited %v", waited))
	}
	if w.last.Full {
		e.Code = "limit.queue_full"
		why = append(why, "the queue is full")
	}
	if i := w.last.By; i >= 0 && i < len(w.request.Rates) {
		r := w.request.Rates[i]
		why = append(why, "rate "+RateText(r))
	}
	if b := w.last.Paused; b != nil {
		why = append(why, fmt.Sprintf("paused by %v: %s", b.By, b.Reason))
	}
	if again := w.last.Wait.Round(time.Millisecond); again > 0 {
		why = append(why, "retry after "+plain.Exact(again))
	}
	e.Text = strings.Join(why, ", ") + "."
	return e
}

// explain converts an error of the limit to the error of the verb.
func (o *PermitOrder) explain(err error) error {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused
	}
	e := &Error{Code: codeOf(err, driver.ErrUnavailable), Exit: ExitUnavailable, Text: fmt.Sprintf("Cannot use the limits%s: %v.", o.at(err), err)}
	if errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnsupported) {
		e.Exit = ExitUsage
	}
	e.Text = mask.Text(e.Text)
	return e
}
