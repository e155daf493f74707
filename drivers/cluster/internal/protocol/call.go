package protocol

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/megaframework/mega/internal/group"
)

// CallError is the error of a call whose Handler has failed.
type CallError struct{ Name, Text string }

func (e *CallError) Error() string { return fmt.Sprintf("call %q: %s", e.Name, e.Text) }

// Calls are the calls on one line, in both directions.
type Calls struct {
	line   *Line
	handle func(ctx context.Context, name string, body []byte) ([]byte, error) // nil answers no call
	log    *slog.Logger

	busy group.Group // the Handler calls

	mu    sync.Mutex
	last  uint64
	asked map[uint64]chan<- answer
	err   error // why further calls fail

	parts map[partOf][]byte // of bodies that have not arrived whole; belongs to the reader
}

// partOf identifies the call or the result whose body arrives in parts.
type partOf struct {
	number uint64
	result bool
}

type answer struct {
	body []byte
	err  error
}

// Open makes c ready for the calls of line. handle answers the calls of the other
// side; nil answers none.
func (c *Calls) Open(line *Line, handle func(ctx context.Context, name string, body []byte) ([]byte, error), log *slog.Logger) {
	c.line, c.handle, c.log = line, handle, log
	c.busy.Init()
	c.asked = make(map[uint64]chan<- answer)
}

// Call calls the Handler of the other side.
func (c *Calls) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	answered := make(chan answer, 1)
	number, err := c.ask(answered)
	if err != nil {
		return nil, fmt.Errorf("call %q: %w", name, err)
	}
	defer c.forget(number)
	if err := c.send(ctx, Begin(TypeCall).Uint(number).String(name), partOf{number: number}, body); err != nil {
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

const (
	// maxBody is the maximum number of bytes of the body of a call or of a result.
	maxBody = 64 << 20
	// partSize is the number of bytes of a part. partsRoom is how many bytes may wait to
	// be written before a further part: the locks and messages of the line do not wait
	// behind a whole body.
	partSize  = 64 << 10
	partsRoom = 128 << 10
)

// BodyError is the error for a body of more than maxBody bytes.
type BodyError struct{ Length int }

func (e *BodyError) Error() string {
	return fmt.Sprintf("a body of %d bytes: calls have at most %d", e.Length, maxBody)
}

// send ends f with the body and sends it. A body that is longer than a frame precedes
// it in parts, until ctx ends.
func (c *Calls) send(ctx context.Context, f *Frame, of partOf, body []byte) error {
	if len(body) > maxBody {
		f.Free()
		return &BodyError{len(body)}
	}
	if f.Len()-head+len(body) <= MaxFrame {
		return c.line.Send(f.Rest(body))
	}
	part := func(b []byte) error {
		return c.line.Send(Begin(TypePart).Uint(of.number).Bool(of.result).Rest(b))
	}
	for ; len(body) > partSize; body = body[partSize:] {
		if err := c.line.Room(ctx, partsRoom); err != nil {
			f.Free()
			_ = part(nil) // err is the reason
			return err
		}
		if err := part(body[:partSize]); err != nil {
			f.Free()
			return err
		}
	}
	return c.line.Send(f.Rest(body))
}

// Part handles a part of a body. An error ends the connection.
func (c *Calls) Part(d *Decoder) error {
	of := partOf{d.Uint(), d.Bool()}
	b := d.Rest()
	if err := d.Err(); err != nil {
		return err
	}
	if len(b) == 0 {
		delete(c.parts, of)
		return nil
	}
	if n := len(c.parts[of]) + len(b); n > maxBody {
		return &BodyError{n}
	}
	if c.parts == nil {
		c.parts = make(map[partOf][]byte)
	}
	c.parts[of] = append(c.parts[of], b...)
	return nil
}

// body returns a copy of the body whose rest has arrived.
func (c *Calls) body(of partOf, rest []byte) []byte {
	first, parted := c.parts[of]
	if !parted {
		return bytes.Clone(rest)
	}
	delete(c.parts, of)
	return append(first, rest...)
}

func (c *Calls) ask(answered chan<- answer) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.last++
	c.asked[c.last] = answered
	return c.last, nil
}

func (c *Calls) forget(number uint64) chan<- answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	answered := c.asked[number]
	delete(c.asked, number)
	return answered
}

// Result handles the answer to a call whose caller may have given up.
func (c *Calls) Result(d *Decoder) {
	number, failed := d.Uint(), d.Bool()
	body := c.body(partOf{number, true}, d.Rest())
	if d.Err() != nil {
		return // its reader ends the line, and with it the call
	}
	answered := c.forget(number)
	switch {
	case answered == nil:
	case failed:
		answered <- answer{err: &CallError{Text: string(body)}}
	default:
		answered <- answer{body: body}
	}
}

// ErrNoHandler is the error of a call if there is no Handler.
var ErrNoHandler = errors.New("this process answers no calls")

// errGoexit is the error of a call whose Handler does not return.
var errGoexit = errors.New("the handler called runtime.Goexit")

// Serve answers a call, on its own goroutine.
func (c *Calls) Serve(d *Decoder) {
	number, name := d.Uint(), d.String()
	body := c.body(partOf{number: number}, d.Rest())
	if d.Err() != nil {
		return
	}
	c.busy.Go(func(ctx context.Context) {
		var answer []byte
		err := errGoexit // unless the Handler returns
		defer func() {
			err = c.reply(ctx, number, answer, err)
			if _, oversized := errors.AsType[*BodyError](err); oversized {
				_ = c.reply(ctx, number, nil, err) // a line that has ended has no caller
			}
		}()
		answer, err = c.answer(ctx, name, body)
	})
}

func (c *Calls) reply(ctx context.Context, number uint64, answer []byte, err error) error {
	f := Begin(TypeResult).Uint(number).Bool(err != nil)
	if err != nil {
		answer = []byte(err.Error())
	}
	return c.send(ctx, f, partOf{number, true}, answer)
}

// answer calls the Handler. A panic of the Handler is an error of this call
// alone.
func (c *Calls) answer(ctx context.Context, name string, body []byte) (answer []byte, err error) {
	if c.handle == nil {
		return nil, ErrNoHandler
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the handler panicked: %v", r)
			c.log.Error("cluster: handler of a call panicked", "call", name, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	answer, err = c.handle(ctx, name, body)
	if err != nil {
		err = errors.New(err.Error()) // here, because Error may panic too
	}
	return answer, err
}

// Fail fails the running calls of this side and ends the context of the Handler
// calls. The caller of Fail waits for the Handlers when nothing else depends on
// it: a Handler may take its time.
func (c *Calls) Fail(err error) {
	c.busy.Close(0)
	c.mu.Lock()
	c.err = err
	asked := c.asked
	c.asked = nil
	c.mu.Unlock()
	for _, answered := range asked {
		answered <- answer{err: err}
	}
}

// Wait waits, after Fail, until no Handler runs.
func (c *Calls) Wait() { <-c.busy.Ended() }

// Ended returns a channel that is closed, after Fail, when no Handler runs.
func (c *Calls) Ended() <-chan struct{} { return c.busy.Ended() }

// IsClosed reports whether done is closed, without a wait.
func IsClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
