package protocol

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// The frames of these tests: the answer to a call, with its number, and a frame
// that no caller waits for, with its number.
const (
	answerType Type = iota + 1
	pushType
)

// asker is one side of a connection whose reader always yields. It asks by
// sending the number of a call, which answers by any goroutine that reads.
type asker struct {
	line   *Line
	pushed chan uint64 // by the reader
	byRead chan uint64 // the answers that the reader has read
	ended  chan error  // by Read

	mu    sync.Mutex
	asked map[uint64]chan error
}

func newAsker(t *testing.T, conn net.Conn) *asker {
	t.Helper()
	a := &asker{line: NewLine(conn), pushed: make(chan uint64, 1<<16), byRead: make(chan uint64, 1<<16), ended: make(chan error, 1), asked: make(map[uint64]chan error)}
	t.Cleanup(a.line.Close)
	go func() {
		a.ended <- a.line.Read(func(typ Type, body []byte) error {
			d := NewDecoder(body)
			if typ == pushType {
				a.pushed <- d.Uint()
				return nil
			}
			n := d.Uint()
			a.byRead <- n
			a.answer(n)
			return nil
		}, a.line.Yield)
	}()
	return a
}

func (a *asker) answer(n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[n] <- nil
	delete(a.asked, n)
}

// ask returns when call n is answered, and reports whether the caller has read
// the answer itself.
func (a *asker) ask(t *testing.T, n uint64) (led bool) {
	t.Helper()
	answered := make(chan error, 1)
	a.mu.Lock()
	a.asked[n] = answered
	a.mu.Unlock()
	if err := a.line.Send(Begin(answerType).Uint(n)); err != nil {
		t.Error(err)
		return false
	}
	a.line.Lead(func(typ Type, body []byte) error {
		if typ == pushType {
			return ErrNotMine
		}
		d := NewDecoder(body)
		got := d.Uint()
		led = led || got == n
		a.answer(got)
		return nil
	}, answered)
	<-answered
	return led
}

// echo answers each frame with frames that answer returns.
func echo(t *testing.T, conn net.Conn, answer func(n uint64) []*Frame) *Line {
	t.Helper()
	l := NewLine(conn)
	var done sync.WaitGroup
	done.Go(func() {
		_ = l.Read(func(_ Type, body []byte) error { // the other side closes the connection
			d := NewDecoder(body)
			for _, f := range answer(d.Uint()) {
				if err := l.Queue(f, 0); err != nil {
					return err
				}
				f.Free()
			}
			return nil
		}, l.Flush)
	})
	t.Cleanup(func() { l.Close(); done.Wait() })
	return l
}

func answerOnly(n uint64) []*Frame { return []*Frame{Begin(answerType).Uint(n)} }

// lead asks until the caller has read an answer itself, which takes some calls
// until the reader has yielded.
func (a *asker) lead(t *testing.T) {
	t.Helper()
	for n := uint64(1 << 32); !a.ask(t, n); n++ {
	}
}

// leading returns a side whose callers read their answers, on a connection whose
// reader can yield, and the side that answers.
func leading(t *testing.T, answer func(n uint64) []*Frame) (*asker, *Line) {
	t.Helper()
	x, y := pairs(t)["socket"]()
	a := newAsker(t, x)
	other := echo(t, y, answer)
	a.lead(t)
	return a, other
}

func TestCallersReadTheirAnswersAfterYield(t *testing.T) {
	leading(t, answerOnly)
}

// TestReaderReadsWithoutACaller sends a frame for which nobody has asked to a
// side whose callers have read until then.
func TestReaderReadsWithoutACaller(t *testing.T) {
	a, other := leading(t, answerOnly)
	for n := range uint64(100) {
		if err := other.Send(Begin(pushType).Uint(n)); err != nil {
			t.Fatal(err)
		}
		if got := <-a.pushed; got != n {
			t.Fatalf("the reader handles %d, want %d", got, n)
		}
	}
}

// TestReaderHandlesWhatACallerDoesNot has frames for the reader arrive before and
// after an answer, in the same read; one of them is larger than the buffer.
func TestReaderHandlesWhatACallerDoesNot(t *testing.T) {
	large := bytes.Repeat([]byte{1}, 3*usualBuffer)
	a, _ := leading(t, func(n uint64) []*Frame {
		if n >= 1<<32 {
			return answerOnly(n)
		}
		return []*Frame{Begin(pushType).Uint(3 * n), Begin(answerType).Uint(n), Begin(pushType).Uint(3*n + 1), Begin(pushType).Uint(3*n + 2).Bytes(large)}
	})
	for n := range uint64(30) {
		a.lead(t)
		a.ask(t, n)
		for i := range uint64(3) {
			if got := <-a.pushed; got != 3*n+i {
				t.Fatalf("the reader handles %d, want %d", got, 3*n+i)
			}
		}
	}
}

func TestEndOfTheConnectionReachesTheReader(t *testing.T) {
	a, other := leading(t, answerOnly)
	other.Close()
	if err := <-a.ended; !errors.Is(err, io.EOF) && !HasEnded(err) {
		t.Errorf("Read returns %v, want the end of the connection", err)
	}
}

func TestCloseEndsAReaderThatHasYielded(t *testing.T) {
	a, _ := leading(t, answerOnly)
	a.line.Close()
	if err := <-a.ended; err == nil {
		t.Error("Read returns nil after Close")
	}
}

// TestCallerOfASilentSideReturns leads a connection on which no answer comes: the
// reader must have it back, with the frame that comes later.
func TestCallerOfASilentSideReturns(t *testing.T) {
	a, other := leading(t, answerOnly)
	a.line.Lead(func(Type, []byte) error { return ErrNotMine }, make(chan error, 1))
	if err := other.Send(Begin(pushType).Uint(7)); err != nil {
		t.Fatal(err)
	}
	if got := <-a.pushed; got != 7 {
		t.Errorf("the reader handles %d, want 7", got)
	}
}

// TestCallersAndReaderShareAConnection has several callers ask while frames for
// the reader arrive: each frame is handled once, and those for the reader in
// order.
func TestCallersAndReaderShareAConnection(t *testing.T) {
	onEachPair(t, func(t *testing.T, x, y net.Conn) {
		t.Helper()
		a := newAsker(t, x)
		other := echo(t, y, answerOnly)
		const callers, calls, pushes = 3, 300, 300
		var all sync.WaitGroup
		for c := range uint64(callers) {
			all.Go(func() {
				for n := range uint64(calls) {
					a.ask(t, c<<16|n)
				}
			})
		}
		all.Go(func() {
			for n := range uint64(pushes) {
				if err := other.Send(Begin(pushType).Uint(n)); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for n := range uint64(pushes) {
				if got := <-a.pushed; got != n {
					t.Errorf("the reader handles %d, want %d", got, n)
				}
			}
		})
		all.Wait()
	})
}
