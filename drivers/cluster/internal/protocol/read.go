package protocol

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"
)

// Limits bounds the frames of the other side. A zero field means no bound
// except MaxFrame.
type Limits struct {
	Frame  int           // the largest length of a frame
	First  time.Duration // from the start of Read until the first frame has arrived
	Within time.Duration // from the start of a frame to its end
}

// Limit sets the bounds of further frames. It is called before Read, or by the
// functions that Read calls.
func (l *Line) Limit(x Limits) { l.limits = x }

const (
	// firstBuffer is the size of a reader's first buffer. The buffer grows with
	// the received bytes, and not with the length that a frame claims.
	firstBuffer = 1 << 10
	// usualBuffer is the size to which the buffer grows for many small frames,
	// and to which it returns after a large one.
	usualBuffer = 64 << 10
	// grace is the time for which a reader continues after a deadline: if its
	// own process was stopped, the frame has already arrived.
	grace = time.Second
)

// Read passes each frame that arrives to handle. It calls pause when it has
// passed on everything that has arrived so far. The body is valid only during
// the call. Read returns the error of handle. It returns io.EOF if the other
// side has ended after a whole frame, and io.ErrUnexpectedEOF if it has ended
// within one. Otherwise it returns a *FrameError, an error that wraps
// os.ErrDeadlineExceeded beyond Limits, or the connection's error.
func (l *Line) Read(handle func(t Type, body []byte) error, pause func()) error {
	defer l.watch.Close() // the turn stays with the reader that has ended
	l.in = make([]byte, firstBuffer)
	timer := deadline{line: l, first: true}
	for {
		if err := timer.set(l.filled > 0); err != nil {
			return err
		}
		n, err := l.receive()
		if n == 0 && timer.late(err) {
			continue
		}
		l.filled += n
		used, bad := l.split(l.in[:l.filled], handle)
		if bad != nil {
			return bad
		}
		timer.moved(used > 0)
		pause()
		grow := l.filled == len(l.in)
		l.filled = copy(l.in, l.in[used:l.filled])
		if err != nil {
			return ended(err, l.filled)
		}
		if l.in, err = l.fit(l.in, l.filled, grow); err != nil {
			return err
		}
		if l.yields {
			l.standBy()
		}
	}
}

// deadline bounds the first frame of a reader, and each frame that has begun.
type deadline struct {
	line  *Line
	first bool      // no frame has arrived yet
	until time.Time // zero without a bound
	again bool      // the deadline has passed, and grace runs
}

// set sets the deadline of the next read. begun reports whether a frame has
// begun.
func (d *deadline) set(begun bool) error {
	bound := d.line.limits.Within
	if d.first && d.line.limits.First > 0 {
		bound = d.line.limits.First
	} else if !begun {
		bound = 0
	}
	if bound == 0 || !d.until.IsZero() {
		return nil // there is no deadline, or it runs already
	}
	d.until = time.Now().Add(bound)
	return d.line.conn.SetReadDeadline(d.until)
}

// late reports whether err is a deadline that has passed for the first time:
// frames that arrive within grace are still in time.
func (d *deadline) late(err error) bool {
	if d.again || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	d.again = true
	return d.line.conn.SetReadDeadline(time.Now().Add(grace)) == nil
}

// moved ends the deadline of a frame that has arrived.
func (d *deadline) moved(whole bool) {
	if !whole || d.until.IsZero() {
		return
	}
	d.first, d.again, d.until = false, false, time.Time{}
	_ = d.line.conn.SetReadDeadline(time.Time{}) // the next read returns any error
}

// ended returns the error of a read that has ended with left bytes of an
// incomplete frame.
func ended(err error, left int) error {
	if errors.Is(err, io.EOF) && left > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// split passes on the whole frames in b and returns their total length.
func (l *Line) split(b []byte, handle func(t Type, body []byte) error) (used int, err error) {
	for {
		n, whole, err := l.measure(b[used:])
		if err != nil || !whole {
			return used, err
		}
		frame := b[used+head : used+n]
		if err := handle(Type(frame[0]), frame[1:]); err != nil {
			return used, err
		}
		used += n
	}
}

// measure returns the length of the frame at the beginning of b, and reports
// whether b contains all of it.
func (l *Line) measure(b []byte) (n int, whole bool, err error) {
	if len(b) < head {
		return head, false, nil
	}
	length, most := binary.LittleEndian.Uint32(b), MaxFrame
	if l.limits.Frame > 0 {
		most = min(most, l.limits.Frame)
	}
	if length == 0 || length > uint32(most) {
		return 0, false, &FrameError{length}
	}
	n = head + int(length)
	return n, len(b) >= n, nil
}

// fit returns a buffer with the same content and room for more. grow reports
// whether the last read has filled the buffer.
func (l *Line) fit(b []byte, filled int, grow bool) ([]byte, error) {
	n, _, err := l.measure(b[:filled])
	if err != nil {
		return nil, err
	}
	size := len(b)
	switch {
	case filled == len(b):
		size = min(2*len(b), max(n, usualBuffer))
	case filled == 0 && len(b) > usualBuffer:
		size = usualBuffer
	case grow && len(b) < usualBuffer:
		size = min(2*len(b), usualBuffer)
	}
	if size == len(b) {
		return b, nil
	}
	next := make([]byte, size)
	copy(next, b[:filled])
	return next, nil
}
