package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Line is one side of a connection. Frames are queued by anybody and written in
// the order in which they were: by whoever calls Flush as far as the connection
// takes them at once, and else by a goroutine of the line, so that neither
// Queue nor Flush ever waits for the other side.
//
// Its methods may be called concurrently, Read by one goroutine.
type Line struct {
	conn   net.Conn
	now    instant // writes what the connection takes at once
	limits Limits  // the reader's

	mu     sync.Mutex
	out    [][]byte      // queued, in chunks, of which the last is being filled
	queued int           // bytes of out
	spare  [][]byte      // the list for the next out
	free   [][]byte      // chunks for the next out
	flight int           // bytes that are being written
	writer writer        // who writes
	rest   [][]byte      // what a Flush could not write, for the line's goroutine
	room   chan struct{} // closed when something was written; nil while nobody waits
	err    error         // why nothing is written any more

	wake  chan struct{}
	ended chan struct{} // closed with err
	done  sync.WaitGroup
}

// writer is who writes to a connection.
type writer uint8

const (
	nobody    writer = iota
	aCaller          // of Flush
	goroutine        // of the line
)

// NewLine returns a line over conn, which it owns from then on. Close ends both.
func NewLine(conn net.Conn) *Line {
	l := &Line{conn: conn, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.now.open(conn)
	l.done.Go(l.write)
	return l
}

// Queue takes a frame, to be written by the next Flush or FlushSoon. If limit or
// more bytes wait already it returns ErrFull and takes nothing; a limit of 0 is
// none. Other errors say why the line has ended.
func (l *Line) Queue(f *Frame, limit int) error {
	if n := len(f.b) - head; n > MaxFrame {
		return &FrameError{uint32(min(n, 1<<32-1))}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if limit > 0 && l.queued+l.flight >= limit {
		return ErrFull
	}
	l.add(f.bytes())
	return nil
}

// chunk is how much is written at a time, and maxFree how many chunks are kept
// for use while there is much to write; one is kept afterwards.
const (
	chunk   = 64 << 10
	maxFree = 8
)

// add puts a frame behind what is queued. However much that is, it is not moved
// to make room. The caller holds l.mu.
func (l *Line) add(frame []byte) {
	last := len(l.out) - 1
	if last < 0 || cap(l.out[last])-len(l.out[last]) < len(frame) {
		l.out = append(l.out, l.next(len(frame)))
		last++
	}
	l.out[last] = append(l.out[last], frame...)
	l.queued += len(frame)
}

// next returns an empty chunk with room for n bytes. The caller holds l.mu.
func (l *Line) next(n int) []byte {
	last := len(l.free) - 1
	if last < 0 || n > chunk {
		return make([]byte, 0, max(n, chunk))
	}
	c := l.free[last]
	l.free[last] = nil
	l.free = l.free[:last]
	return c
}

// Send is Queue without a limit, Flush and Free.
func (l *Line) Send(f *Frame) error {
	defer f.Free()
	if err := l.Queue(f, 0); err != nil {
		return err
	}
	l.Flush()
	return nil
}

// Err is why the line has ended, or nil.
func (l *Line) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Ended is closed when the line has ended: see Err.
func (l *Line) Ended() <-chan struct{} { return l.ended }

// Backlog is how many bytes wait to be written.
func (l *Line) Backlog() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued + l.flight
}

// Room returns when less than limit bytes wait to be written, when ctx has
// ended, with its error, or when the line has.
func (l *Line) Room(ctx context.Context, limit int) error {
	for {
		room, err := l.waitFor(limit)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Line) waitFor(limit int) (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.queued+l.flight < limit {
		return nil, l.err
	}
	if l.room == nil {
		l.room = make(chan struct{})
	}
	return l.room, nil
}

// rounds is how often a caller of Flush writes what others have queued in the
// meantime, before it leaves that to the line's goroutine.
const rounds = 4

// Flush writes what is queued, as far as the connection takes it at once; the
// rest is written by the line's goroutine. If somebody is writing already, that
// one writes it.
func (l *Line) Flush() {
	for range rounds {
		batch := l.take(aCaller)
		if batch == nil {
			return
		}
		if !l.writeNow(batch) {
			return
		}
	}
	l.FlushSoon()
}

// writeNow writes what the connection takes at once, and says whether that was
// all. The rest is the goroutine's.
func (l *Line) writeNow(batch [][]byte) bool {
	for i, c := range batch {
		n, err := l.now.write(c)
		if err != nil {
			l.broke(err)
			return false
		}
		if n < len(c) {
			batch[i] = c[n:]
			l.leave(batch[i:], n)
			return false
		}
		l.written(c, i == len(batch)-1)
	}
	l.idle(batch)
	return true
}

// leave leaves rest to the goroutine, after n bytes of its first chunk.
func (l *Line) leave(rest [][]byte, n int) {
	l.mu.Lock()
	l.writer, l.rest = goroutine, rest
	l.flight -= n
	l.mu.Unlock()
	l.FlushSoon()
}

// FlushSoon has the line's goroutine write what is queued: what comes within
// the time that it takes to wake up is written at once.
func (l *Line) FlushSoon() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take gives what is queued to w, unless somebody writes already.
func (l *Line) take(w writer) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer != nobody || len(l.out) == 0 || l.err != nil {
		return nil
	}
	l.writer = w
	batch := l.out
	l.out, l.spare = l.spare[:0], nil
	l.flight, l.queued = l.queued, 0
	return batch
}

// written makes room for as much as c has, whose memory is used again. The last
// one of a batch is left to idle.
func (l *Line) written(c []byte, last bool) {
	if last {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flight -= len(c)
	l.keep(c, maxFree)
	l.tellRoom()
}

// keep keeps c for use, unless there are as many already or it is not of the
// usual size. The caller holds l.mu.
func (l *Line) keep(c []byte, most int) {
	if cap(c) == chunk && len(l.free) < most {
		l.free = append(l.free, c[:0])
	}
}

// tellRoom wakes those who wait for room. The caller holds l.mu.
func (l *Line) tellRoom() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// idle ends the writing of batch.
func (l *Line) idle(batch [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writer, l.flight = nobody, 0
	if len(l.out) == 0 && len(l.free) > 1 {
		clear(l.free[1:])
		l.free = l.free[:1]
	}
	l.keep(batch[len(batch)-1], maxFree)
	clear(batch)
	if cap(batch) <= 1024 {
		l.spare = batch[:0]
	}
	l.tellRoom()
}

// write is the line's goroutine.
func (l *Line) write() {
	for {
		select {
		case <-l.wake:
		case <-l.ended:
			return
		}
		for batch := l.mine(); batch != nil; batch = l.mine() {
			for i, c := range batch {
				if _, err := l.conn.Write(c); err != nil {
					l.broke(err)
					return
				}
				l.written(c, i == len(batch)-1)
			}
			l.idle(batch)
		}
	}
}

// mine returns what the goroutine is to write: what a Flush has left it, or what
// is queued.
func (l *Line) mine() [][]byte {
	l.mu.Lock()
	rest := l.rest
	l.rest = nil
	l.mu.Unlock()
	if rest != nil {
		return rest
	}
	return l.take(goroutine)
}

// ErrClosed is why a line has ended that was closed on this side.
var ErrClosed = errors.New("the line was closed")

// End is Close, with a reason, that does not wait for the line's goroutine. Only
// the first reason counts.
func (l *Line) End(err error) {
	l.stop(err)
	_ = l.conn.Close() // there is nothing left to lose
}

// broke ends the line because nothing can be written. What the other side has
// said before it went can still be read, and then that it is gone.
func (l *Line) broke(err error) {
	l.stop(err)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		_ = l.conn.Close() // err says more
	}
}

// stop ends the writing.
func (l *Line) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	l.out, l.rest, l.spare, l.free, l.queued, l.flight = nil, nil, nil, nil, 0, 0
	l.tellRoom()
	close(l.ended)
}

// Close ends the line and its connection; what is queued is not written any
// more. A Read under way returns. It is idempotent.
func (l *Line) Close() {
	l.End(ErrClosed)
	l.done.Wait()
}

// Limits bounds what the other side may send. A zero field is no bound beside
// MaxFrame.
type Limits struct {
	Frame  int           // the largest length of a frame
	First  time.Duration // until the first frame has arrived, from the start of Read
	Within time.Duration // within a frame
}

// Limit bounds what is read from now on. It is called before Read, or within its
// functions.
func (l *Line) Limit(x Limits) { l.limits = x }

const (
	// firstBuffer is the size of a reader's first buffer. It grows with what
	// arrives, and not with the length that a frame claims.
	firstBuffer = 1 << 10
	// usualBuffer is how far it grows for many small frames, and returns to after
	// a large one.
	usualBuffer = 64 << 10
	// grace is how long a reader goes on after a deadline: where its own process
	// was stopped, the frame is there already.
	grace = time.Second
)

// Read hands each frame that arrives to handle, and calls pause when everything
// that has arrived so far was handed over. The body is valid during the call
// alone. It returns the error of handle, io.EOF if the other side has ended
// after a whole frame, io.ErrUnexpectedEOF within one, a *FrameError, an error
// that wraps os.ErrDeadlineExceeded beyond Limits, or the connection's.
func (l *Line) Read(handle func(t Type, body []byte) error, pause func()) error {
	b := make([]byte, firstBuffer)
	filled := 0
	timer := deadline{line: l, first: true}
	for {
		if err := timer.set(filled > 0); err != nil {
			return err
		}
		n, err := l.conn.Read(b[filled:])
		if n == 0 && timer.late(err) {
			continue
		}
		filled += n
		used, bad := l.split(b[:filled], handle)
		if bad != nil {
			return bad
		}
		timer.moved(used > 0)
		pause()
		grow := filled == len(b)
		filled = copy(b, b[used:filled])
		if err != nil {
			return ended(err, filled)
		}
		if b, err = l.fit(b, filled, grow); err != nil {
			return err
		}
	}
}

// deadline bounds the first frame of a reader, and each that has begun.
type deadline struct {
	line  *Line
	first bool      // no frame has arrived yet
	until time.Time // zero without a bound
	again bool      // it has passed, and grace runs
}

// set sets the deadline of the next read. begun says that a frame has begun.
func (d *deadline) set(begun bool) error {
	bound := d.line.limits.Within
	if d.first && d.line.limits.First > 0 {
		bound = d.line.limits.First
	} else if !begun {
		bound = 0
	}
	switch {
	case d.again || bound > 0 && !d.until.IsZero():
		return nil // it runs
	case bound == 0 && d.until.IsZero():
		return nil
	case bound == 0:
		d.until = time.Time{}
	default:
		d.until = time.Now().Add(bound)
	}
	return d.line.conn.SetReadDeadline(d.until)
}

// late reports whether err is a deadline that has passed for the first time: what
// arrives within grace is still in time.
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
	_ = d.line.conn.SetReadDeadline(time.Time{}) // the next read says what is wrong
}

// ended is how reading ended that has left so many bytes of a frame.
func ended(err error, left int) error {
	if errors.Is(err, io.EOF) && left > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// split hands over the whole frames in b and returns how long they are.
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

// measure returns the length of the frame at the beginning of b, and whether all
// of it is there.
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

// fit returns a buffer with the same content and room for more. grow says that the
// last read has filled it.
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
