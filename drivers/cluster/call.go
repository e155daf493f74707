package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/megaframework/mega/drivers/cluster/wire"
)

// Handler answers a call: a question by name, for what a hub's process and its
// peers have to say to each other beside locks and messages. Each call has a
// goroutine; ctx ends when the asker is gone. From is nil at a peer, which is
// asked by its hub. The body may be kept.
type Handler func(ctx context.Context, from *Peer, name string, body []byte) ([]byte, error)

// CallError is what a Handler has failed with.
type CallError struct{ Name, Text string }

func (e *CallError) Error() string { return fmt.Sprintf("call %q: %s", e.Name, e.Text) }

// calls are those of one line, in both directions.
type calls struct {
	line   *wire.Line
	handle Handler
	log    *slog.Logger
	from   *Peer

	ctx    context.Context // of those that are answered
	cancel context.CancelFunc
	busy   sync.WaitGroup

	mu    sync.Mutex
	last  uint64
	asked map[uint64]chan<- answer
	err   error // why no more are asked
}

type answer struct {
	body []byte
	err  error
}

func (c *calls) open(line *wire.Line, handle Handler, from *Peer, log *slog.Logger) {
	c.line, c.handle, c.from, c.log = line, handle, from, log
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.asked = make(map[uint64]chan<- answer)
}

// call asks the other side.
func (c *calls) call(ctx context.Context, name string, body []byte) ([]byte, error) {
	answered := make(chan answer, 1)
	number, err := c.ask(answered)
	if err != nil {
		return nil, fmt.Errorf("call %q: %w", name, err)
	}
	defer c.forget(number)
	if err := c.line.Send(wire.Begin(typeCall).Uint(number).String(name).Rest(body)); err != nil {
		return nil, fmt.Errorf("call %q: %w", name, err)
	}
	select {
	case a := <-answered:
		if e, ok := errors.AsType[*CallError](a.err); ok {
			e.Name = name
		}
		return a.body, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("call %q: %w", name, ctx.Err())
	}
}

func (c *calls) ask(answered chan<- answer) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.last++
	c.asked[c.last] = answered
	return c.last, nil
}

func (c *calls) forget(number uint64) chan<- answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	answered := c.asked[number]
	delete(c.asked, number)
	return answered
}

// result takes the answer to a call, which may have been given up.
func (c *calls) result(d *wire.Decoder) {
	number, failed := d.Uint(), d.Bool()
	body := bytes.Clone(d.Rest())
	answered := c.forget(number)
	switch {
	case answered == nil:
	case failed:
		answered <- answer{err: &CallError{Text: string(body)}}
	default:
		answered <- answer{body: body}
	}
}

// errNoHandler is the answer to a call where there is no Handler.
var errNoHandler = errors.New("nobody answers calls here")

// serve answers a call, on a goroutine of its own.
func (c *calls) serve(d *wire.Decoder) {
	number, name := d.Uint(), d.String()
	body := bytes.Clone(d.Rest())
	if d.Err() != nil {
		return
	}
	c.busy.Go(func() {
		answer, err := c.answer(name, body)
		err = c.reply(number, answer, err)
		if _, oversized := errors.AsType[*wire.FrameError](err); oversized {
			_ = c.reply(number, nil, err) // a line that has ended has no asker
		}
	})
}

func (c *calls) reply(number uint64, answer []byte, err error) error {
	f := wire.Begin(typeResult).Uint(number).Bool(err != nil)
	if err != nil {
		answer = []byte(err.Error())
	}
	return c.line.Send(f.Rest(answer))
}

// answer asks the Handler. Its panic is an error of this call alone.
func (c *calls) answer(name string, body []byte) (answer []byte, err error) {
	if c.handle == nil {
		return nil, errNoHandler
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the handler panicked: %v", r)
			c.log.Error("cluster: handler of a call panicked", "call", name, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return c.handle(c.ctx, c.from, name, body)
}

// fail fails the calls under way and ends the context of those that are
// answered. Whoever calls it waits for them once nobody else has to wait for
// that: a Handler may take its time.
func (c *calls) fail(err error) {
	c.cancel()
	c.mu.Lock()
	c.err = err
	asked := c.asked
	c.asked = nil
	c.mu.Unlock()
	for _, answered := range asked {
		answered <- answer{err: err}
	}
}

func (c *calls) wait() { c.busy.Wait() }
