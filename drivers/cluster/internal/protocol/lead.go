package protocol

import (
	"errors"
	"os"
	"time"
)

// A caller whose answer the line's reader passes on pays for two switches of
// goroutines, and for another thread that the runtime wakes meanwhile: more than
// the round trip of a small frame itself. So while calls come one after the
// other, callers read their answers themselves: see Yield and Lead.
//
// Line.turn belongs to the goroutine that reads. The reader has it, except while
// it waits in standBy; there, watch wakes it for every frame that no caller reads.

// ErrNotMine is returned by the function of Lead for a frame that the reader must
// handle.
var ErrNotMine = errors.New("the frame is for the reader")

// Yield makes the reader leave the next frames to callers of Lead. The reader
// continues when a frame arrives while there is no such caller, or one that a
// caller does not handle. Only a function that Read calls may call Yield.
func (l *Line) Yield() { l.yields = true }

// standBy is the wait of a reader that has called Yield. The caller holds l.turn.
func (l *Line) standBy() {
	l.yields = false
	if !l.watch.Open(l.conn) || !l.watch.Arm() {
		return // this connection has no other way to wait than to read
	}
	l.turn.Unlock()
	l.watch.Wait()
	l.turn.Lock()
	l.watch.Disarm()
	if !l.ledUntil.IsZero() {
		l.ledUntil = time.Time{}
		_ = l.conn.SetReadDeadline(time.Time{}) // the next read returns any error
	}
}

// ledAtMost bounds the time for which a caller of Lead waits in vain. It is also
// the longest time for which such a caller does not notice the end of its context.
const ledAtMost = 10 * time.Millisecond

// Lead reads frames on the goroutine of the caller, and passes them to handle,
// until answered has an element. It returns at once if another goroutine reads,
// and it returns after at most ledAtMost; the caller then waits for answered.
//
// handle returns ErrNotMine for a frame that the reader must handle; any other
// error ends the reader.
func (l *Line) Lead(handle func(t Type, body []byte) error, answered <-chan error) {
	if len(answered) > 0 || !l.turn.TryLock() {
		return
	}
	defer l.turn.Unlock()
	l.watch.Disarm()
	for len(answered) == 0 && !l.left && l.leadOnce(handle) {
	}
	if l.left || !l.watch.Arm() {
		l.watch.Wake()
	}
}

// leadOnce reads once, and reports whether the caller may read again. The caller
// holds l.turn.
func (l *Line) leadOnce(handle func(t Type, body []byte) error) bool {
	if now := time.Now(); l.ledUntil.Sub(now) < ledAtMost/2 { // not for each call: it costs more than time.Now
		l.ledUntil = now.Add(ledAtMost)
		_ = l.conn.SetReadDeadline(l.ledUntil) // the read returns any error
	}
	n, err := l.conn.Read(l.in[l.filled:])
	l.filled += n
	used, bad := l.split(l.in[:l.filled], handle)
	l.filled = copy(l.in, l.in[used:l.filled])
	switch {
	case errors.Is(bad, ErrNotMine):
		l.left = true
	case bad != nil:
		l.left, l.failed = true, bad
	case n == 0 && errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case err != nil:
		l.left, l.failed = true, err
	case l.filled == len(l.in):
		l.left = true // the reader grows the buffer
	}
	return true
}

// receive reads once, unless a caller of Lead has left something for the reader.
func (l *Line) receive() (n int, err error) {
	if !l.left {
		return l.conn.Read(l.in[l.filled:])
	}
	err = l.failed
	l.left, l.failed = false, nil
	return 0, err
}
