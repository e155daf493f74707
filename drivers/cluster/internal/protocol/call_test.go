package protocol

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
)

// absentError is an error whose nil pointer has no text.
type absentError struct{ text string }

func (e *absentError) Error() string { return e.text }

// newLines returns the ends of a connection, which are closed with the test.
func newLines(t *testing.T) (here, there *Line) {
	t.Helper()
	a, b := net.Pipe()
	here, there = NewLine(a), NewLine(b)
	t.Cleanup(here.Close)
	t.Cleanup(there.Close)
	return here, there
}

func TestACallFailsWhoseHandlerReturnsANilPointerAsItsError(t *testing.T) {
	here, there := newLines(t)
	var asks, serves Calls
	asks.Open(here, nil, slog.New(slog.DiscardHandler))
	serves.Open(there, func(context.Context, string, []byte) ([]byte, error) {
		var none *absentError
		return nil, none
	}, slog.New(slog.DiscardHandler))
	read := func(l *Line, c *Calls) {
		_ = l.Read(func(typ Type, body []byte) error {
			d := NewDecoder(body)
			if typ == TypeCall {
				c.Serve(&d)
			} else {
				c.Result(&d)
			}
			return nil
		}, func() {})
	}
	go read(here, &asks)
	go read(there, &serves)
	_, err := asks.Call(t.Context(), "x", nil)
	if _, ok := errors.AsType[*CallError](err); !ok {
		t.Errorf("%v, want a CallError", err)
	}
	serves.Fail(ErrClosed)
	serves.Wait()
}

func TestAMalformedResultIsNoResult(t *testing.T) {
	var c Calls
	c.Open(nil, nil, slog.New(slog.DiscardHandler))
	answered := make(chan answer, 1)
	number, err := c.ask(answered)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(bodyOf(Begin(TypeResult).Uint(number))) // without the outcome
	c.Result(&d)
	if d.Err() == nil || len(answered) > 0 {
		t.Errorf("a result that is cut off: %v, and %d answers", d.Err(), len(answered))
	}
}

// A caller that gives up while its body waits for the other side leaves nothing there.
func TestACallThatIsGivenUpLeavesNoParts(t *testing.T) {
	here, there := newLines(t)
	var asks, serves Calls
	asks.Open(here, nil, slog.New(slog.DiscardHandler))
	serves.Open(there, nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	parts := 0
	void := make(chan int)
	go func() {
		_ = there.Read(func(typ Type, body []byte) error {
			d := NewDecoder(body)
			if err := serves.Part(&d); err != nil || typ != TypePart {
				t.Errorf("a frame of type %d, %v", typ, err)
			}
			if parts++; parts == 3 {
				cancel()
				<-ctx.Done()
			}
			if len(body) < partSize {
				void <- len(serves.parts)
			}
			return nil
		}, func() {})
	}()
	if _, err := asks.Call(ctx, "x", make([]byte, 8<<20)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the context", err)
	}
	if n := <-void; n != 0 {
		t.Errorf("%d bodies are kept", n)
	}
}

func TestABodyOutOfBoundsEndsTheConnection(t *testing.T) {
	var c Calls
	c.Open(nil, nil, slog.New(slog.DiscardHandler))
	f := Begin(TypePart).Uint(1).Bool(true).Rest(make([]byte, 1<<20))
	for range maxBody >> 20 {
		d := NewDecoder(f.Body())
		if err := c.Part(&d); err != nil {
			t.Fatal(err)
		}
	}
	d := NewDecoder(f.Body())
	if _, ok := errors.AsType[*BodyError](c.Part(&d)); !ok {
		t.Error("a body has no bound")
	}
}
