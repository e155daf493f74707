package protocol

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/internal/nonblock"
)

// Line is one side of a connection. Any goroutine may queue frames; they are
// written in the order in which they were queued. A caller of Flush writes as
// much as the connection takes at once. A goroutine of the line writes the
// rest, so that neither Queue nor Flush ever waits for the other side.
//
// It has no counterpart in drivers/nats, where nats.go owns the socket, one
// goroutine calls it, and a blocked write is cut by a watchdog. Here the caller
// writes, which saves a switch of goroutines, and a write that would block is
// left to the line's goroutine.
//
// Its methods may be called concurrently, except Read, which one goroutine
// calls.
type Line struct {
	conn   net.Conn
	now    instant // writes what the connection takes at once
	limits Limits  // belongs to the reader

	mu     sync.Mutex
	out    [][]byte      // the queue, in chunks; the last chunk is being filled
	queued int           // bytes of out
	spare  [][]byte      // the list for the next out
	free   [][]byte      // chunks for the next out
	flight int           // bytes that are being written
	writer writer        // the current writer
	rest   [][]byte      // the rest of a Flush, for the line's goroutine
	room   chan struct{} // closed when bytes were written; nil without waiters
	err    error         // why the writing has ended

	turn     sync.Mutex // held by the goroutine that reads: see Lead
	in       []byte     // received; its first filled bytes are not handled yet
	filled   int
	yields   bool           // the reader has called Yield
	watch    nonblock.Watch // the wait of a reader that has called Yield
	ledUntil time.Time      // the connection's read deadline, set by callers of Lead
	left     bool           // there is something for the reader in in, or failed
	failed   error          // why a caller of Lead could not read

	wake  chan struct{}
	ended chan struct{} // closed with err
	done  sync.WaitGroup
}

// writer is the kind of goroutine that writes to a connection.
type writer uint8

const (
	nobody    writer = iota
	aCaller          // a caller of Flush
	goroutine        // the line's goroutine
)

// NewLine returns a line over conn, which the line owns from then on. Close
// ends both.
func NewLine(conn net.Conn) *Line {
	l := &Line{conn: nonblock.Conn(conn), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.now.open(conn)
	l.turn.Lock() // for Read
	l.done.Go(l.write)
	return l
}

// Queue takes a frame, which the next Flush or FlushSoon writes. If limit or
// more bytes wait already, Queue returns ErrFull and does not take the frame; a
// limit of 0 means unlimited. Other errors are the reason why the line has
// ended.
func (l *Line) Queue(f *Frame, limit int) error {
	if n := len(f.b) - head; n > MaxFrame {
		return &FrameError{uint32(min(uint64(n), math.MaxUint32))}
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

// chunk is the number of bytes that are written at a time. maxFree is the
// number of chunks that are kept for use while there is much to write; one is
// kept afterwards.
const (
	chunk   = 64 << 10
	maxFree = 8
)

// add appends a frame to the queue. It never moves the queued bytes to make
// room. The caller holds l.mu.
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

// Send does the same as Queue without a limit, Flush and Free.
func (l *Line) Send(f *Frame) error {
	defer f.Free()
	if err := l.Queue(f, 0); err != nil {
		return err
	}
	l.Flush()
	return nil
}

// Err returns why the line has ended, or nil.
func (l *Line) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Ended returns a channel that is closed when the line has ended: see Err.
func (l *Line) Ended() <-chan struct{} { return l.ended }

// Backlog returns how many bytes wait to be written.
func (l *Line) Backlog() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued + l.flight
}

// Room waits until less than limit bytes wait to be written, and returns nil.
// It returns the error of ctx if ctx ends first, or the reason if the line ends
// first.
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

// rounds is the number of times that a caller of Flush writes frames that others
// have queued meanwhile, before it leaves them to the line's goroutine.
const rounds = 4

// Flush writes the queued frames, as far as the connection takes them at once;
// the line's goroutine writes the rest. If another goroutine is writing
// already, that one writes them.
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

// writeNow writes as much as the connection takes at once, and reports whether
// that was all. It leaves the rest to the line's goroutine.
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

// leave leaves rest to the line's goroutine, without the first n bytes of its
// first chunk.
func (l *Line) leave(rest [][]byte, n int) {
	l.mu.Lock()
	l.writer, l.rest = goroutine, rest
	l.flight -= n
	l.mu.Unlock()
	l.FlushSoon()
}

// FlushSoon makes the line's goroutine write the queued frames. Frames that are
// queued until the goroutine wakes up are part of the same write.
func (l *Line) FlushSoon() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take gives the queued frames to w, unless another writer is active.
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

// written accounts for the written bytes of c, and keeps its memory for reuse.
// It leaves the last chunk of a batch to idle.
func (l *Line) written(c []byte, last bool) {
	if last {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flight -= len(c)
	l.keep(c, maxFree)
	l.signalRoom()
}

// keep keeps c for reuse, unless there are as many chunks as most already or c
// is not of the usual size. The caller holds l.mu.
func (l *Line) keep(c []byte, most int) {
	if cap(c) == chunk && len(l.free) < most {
		l.free = append(l.free, c[:0])
	}
}

// signalRoom wakes the waiters for room. The caller holds l.mu.
func (l *Line) signalRoom() {
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
	l.signalRoom()
}

// write is the body of the line's goroutine.
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

// mine returns the bytes for the line's goroutine to write: the rest of a
// Flush, or else the queue.
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

// ErrClosed is the reason of a line that was closed on this side.
var ErrClosed = errors.New("the line was closed")

// End does the same as Close, with a reason, but does not wait for the line's
// goroutine. Only the first reason counts.
func (l *Line) End(err error) {
	l.stop(err)
	_ = l.conn.Close() // no data is left to lose
	l.watch.Wake()
}

// broke ends the line after a failed write. The reader can still read the
// frames that the other side sent before it ended, and then the end of the
// connection.
func (l *Line) broke(err error) {
	l.stop(err)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		_ = l.conn.Close() // err is more specific
		l.watch.Wake()
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
	l.signalRoom()
	close(l.ended)
}

// Close ends the line and its connection; queued frames are not written any
// more. A running Read returns. Close is idempotent.
func (l *Line) Close() {
	l.End(ErrClosed)
	l.done.Wait()
}
