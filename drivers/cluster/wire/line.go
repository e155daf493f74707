package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// Line is one side of a connection. Frames are queued by anybody and written in
// the order in which they were: by whoever calls Flush as far as the connection
// takes them at once, and else by a goroutine of the line, so that neither
// Queue nor Flush ever waits for the other side.
//
// Its methods may be called concurrently, Read by one goroutine.
type Line struct {
	conn net.Conn
	now  instant // writes what the connection takes at once

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

// firstBuffer is what a reader begins with, and returns to.
const firstBuffer = 64 << 10

// Read hands each frame that arrives to handle, and calls pause when everything
// that has arrived so far was handed over. The body is valid during the call
// alone. It returns the error of handle, io.EOF if the other side has ended
// after a whole frame, io.ErrUnexpectedEOF within one, a *FrameError, or what
// the connection says.
func (l *Line) Read(handle func(t Type, body []byte) error, pause func()) error {
	b := make([]byte, firstBuffer)
	filled := 0
	for {
		n, err := l.conn.Read(b[filled:])
		filled += n
		used, bad := split(b[:filled], handle)
		if bad != nil {
			return bad
		}
		pause()
		filled = copy(b, b[used:filled])
		if err != nil {
			return ended(err, filled)
		}
		if b, err = fit(b, filled); err != nil {
			return err
		}
	}
}

// ended is how reading ended that has left so many bytes of a frame.
func ended(err error, left int) error {
	if errors.Is(err, io.EOF) && left > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// split hands over the whole frames in b and returns how long they are.
func split(b []byte, handle func(t Type, body []byte) error) (used int, err error) {
	for {
		n, whole, err := measure(b[used:])
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

// measure returns how long the frame at the beginning of b is, and whether all
// of it is there.
func measure(b []byte) (n int, whole bool, err error) {
	if len(b) < head {
		return head, false, nil
	}
	length := binary.LittleEndian.Uint32(b)
	if length == 0 || length > MaxFrame {
		return 0, false, &FrameError{length}
	}
	n = head + int(length)
	return n, len(b) >= n, nil
}

// fit returns a buffer with the same content that has room for the frame that
// it begins with. One that has grown for a large frame is given back once it
// is empty.
func fit(b []byte, filled int) ([]byte, error) {
	n, _, err := measure(b[:filled])
	if err != nil {
		return nil, err
	}
	size := len(b)
	switch {
	case n > len(b):
		size = n
	case filled == 0:
		size = firstBuffer
	}
	if size == len(b) {
		return b, nil
	}
	next := make([]byte, size)
	copy(next, b[:filled])
	return next, nil
}
