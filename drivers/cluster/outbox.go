package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// outbox is the outbound queue of a process's messages, bounded in bytes. While
// the line takes frames, the outbox passes each frame to it at once. Otherwise
// the frames wait here, in order, and a pump passes them on. Without a line all
// of them wait: events for the next hub (S23), while requests and answers end
// with their own line.
//
// The outbox of drivers/nats keeps the same rules by other means. There an entry
// is a copy of a message, which one writer encodes and gives to the client; here
// it is a frame in its final form, which the publisher itself gives to the line.
// Here a request leaves as soon as its caller has gone (withdraw), and events are
// delivered to the process's own subscriptions; there the writer skips the request,
// and the server delivers. In both, requests leave at the end of their connection.
type outbox struct {
	bus   *Bus
	limit int

	ctx   context.Context // ends with close
	end   context.CancelFunc
	pumps sync.WaitGroup

	mu            sync.Mutex
	line          *protocol.Line // nil while messages are held back
	queue         []outgoing     // valid from head on
	head          int
	size          int           // bytes in queue
	room          chan struct{} // closed when a frame has left the queue; nil without waiters
	back          chan struct{} // closed by resume; nil without waiters
	pumping       bool
	unserved      int // queued events that this process's own subscriptions have not received yet
	queued        int // events so far that had to wait
	passed        int // events among these that have left the queue, and were served
	empty         int // entries of the queue whose frames were withdrawn
	confirmations confirmations
}

// outgoing is an entry of the queue.
type outgoing struct {
	frame    *protocol.Frame // the frame of an event
	size     int
	deadline time.Time  // the deadline of an event; zero without one
	late     bool       // of an event: this process's own subscriptions receive it when it leaves
	bound    *lineBound // set instead of the fields of an event
}

// lineBound is a request, an answer or a sync, which ends with its line. The
// outbox's mutex guards it.
type lineBound struct {
	line   *protocol.Line
	frame  *protocol.Frame // nil after the frame has left
	free   func()          // stops watching the caller's context; nil if it is not watched
	handed tally           // the events that were passed to the line before
	ahead  bool            // the frame has left ahead of the queue, which waits for another line
}

const (
	// window is how many bytes may wait in the line. The frames beyond the
	// window survive the end of the hub (S28), and a request among them is
	// withdrawn when its caller gives up (S12).
	window = 256 << 10
	// overhead is the size of a frame's bookkeeping, which counts beside its
	// bytes.
	overhead = 64
	// maxBatch is the number of frames that are passed on at a time.
	maxBatch = 1024
)

func (o *outbox) open(b *Bus, limit int) {
	o.bus, o.limit = b, limit
	o.ctx, o.end = context.WithCancel(context.Background())
	o.confirmations.open(b)
}

// publish takes an event, and passes it to this process's own subscriptions
// unless it is late.
func (o *outbox) publish(ctx context.Context, f *protocol.Frame, m *driver.Message) error {
	late, err := o.put(ctx, outgoing{frame: f, size: f.Len() + overhead, deadline: m.Deadline}, m)
	if err == nil && !late {
		o.bus.serve(m)
	}
	return err
}

// send takes a frame that is dropped when its line ends.
func (o *outbox) send(ctx context.Context, b *lineBound, m *driver.Message) error {
	_, err := o.put(ctx, outgoing{size: b.frame.Len() + overhead, bound: b}, m)
	return ended(err)
}

// put passes e to the line or queues it, and waits for room within RoomContext.
// It reports whether e is late. If put succeeds, the outbox owns the frame.
func (o *outbox) put(ctx context.Context, e outgoing, m *driver.Message) (late bool, err error) {
	late, room, err := o.tryPut(ctx, &e, m)
	if room == nil {
		return late, err
	}
	bounded, cancel := driver.RoomContext(ctx, m) // S6
	defer cancel()
	for ; room != nil; late, room, err = o.tryPut(ctx, &e, m) {
		select {
		case <-room:
		case <-bounded.Done():
			return false, fmt.Errorf("%w: %d bytes wait for the hub: %w", driver.ErrOverloaded, o.limit, bounded.Err())
		case <-o.bus.node.Done():
			return false, fmt.Errorf("%w: %d bytes wait, and the hub does not come back", driver.ErrOverloaded, o.limit)
		}
	}
	return late, err
}

// tryPut makes one attempt of put. If there is no room, it returns the channel
// to wait for.
func (o *outbox) tryPut(ctx context.Context, e *outgoing, m *driver.Message) (late bool, room <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ctx.Err() != nil:
		return false, nil, driver.ErrClosed
	case e.bound != nil && e.bound.line != o.line:
		e.bound.ahead = true
		return false, nil, handTo(e.bound.line, e.bound.frame, 0) // the hub of the line shuts down, or has ended
	case o.line != nil && o.waiting() == 0 && o.unserved == 0:
		err := o.hand(e)
		if err == nil {
			o.line.FlushSoon() // this wakes the writer, and does not wait
			return false, nil, nil
		}
		if !errors.Is(err, protocol.ErrFull) {
			o.line = nil // the line has ended, and the node has not noticed yet
			if e.bound != nil {
				return false, nil, err
			}
		}
	}
	if o.size >= o.limit {
		return false, o.waitForRoom(), nil
	}
	o.push(ctx, e, m)
	return e.late, nil, nil
}

// hand passes e to the line. The caller holds o's lock.
func (o *outbox) hand(e *outgoing) error {
	if b := e.bound; b != nil {
		b.handed = o.confirmations.handed
		return handTo(o.line, b.frame, window)
	}
	if err := handTo(o.line, e.frame, window); err != nil {
		return err
	}
	o.confirmations.add(e.size - overhead)
	return nil
}

// handTo queues f and frees it, unless there is an error.
func handTo(line *protocol.Line, f *protocol.Frame, limit int) error {
	err := line.Queue(f, limit)
	if err == nil {
		f.Free()
	}
	return err
}

// push queues e. The caller holds o's lock.
func (o *outbox) push(ctx context.Context, e *outgoing, m *driver.Message) {
	o.size += e.size
	if b := e.bound; b == nil {
		o.queued++
		// An event is not delivered before one that was published earlier (S5).
		if e.late = o.line == nil || o.unserved > 0; e.late {
			o.unserved++
		}
	} else if m.Kind == driver.Request {
		size := e.size
		ctx, cancel := context.WithDeadline(ctx, m.Deadline)
		stop := context.AfterFunc(ctx, func() { o.withdraw(b, size) }) // S12
		b.free = func() { stop(); cancel() }
	}
	o.queue = append(o.queue, *e)
	o.pump()
}

// withdraw removes the request of a caller that has given up. Its entry stays
// in the queue for a while, empty.
func (o *outbox) withdraw(b *lineBound, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.frame == nil {
		return
	}
	b.frame.Free()
	b.frame = nil
	o.size -= size
	if o.empty++; o.empty > maxBatch && o.empty > o.waiting()/2 {
		o.compact()
		o.queue = slices.DeleteFunc(o.queue, func(e outgoing) bool { return e.bound != nil && e.bound.frame == nil })
		o.empty = 0
	}
	o.signalRoom()
}

// waitForRoom returns a channel that signalRoom closes. The caller holds o's
// lock.
func (o *outbox) waitForRoom() <-chan struct{} {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// signalRoom wakes the waiters for room. The caller holds o's lock.
func (o *outbox) signalRoom() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// waiting returns the number of entries in the queue. The caller holds o's
// lock.
func (o *outbox) waiting() int { return len(o.queue) - o.head }

// shift removes the first n entries from the queue. It moves the others seldom,
// so that the cost of an entry does not grow with the length of the queue. The
// caller holds o's lock.
func (o *outbox) shift(n int) {
	if n == 0 {
		return
	}
	clear(o.queue[o.head : o.head+n])
	o.head += n
	if 2*o.head >= len(o.queue) {
		o.compact()
	}
	o.signalRoom()
}

// compact moves the queue to the beginning of its memory. The caller holds o's
// lock.
func (o *outbox) compact() {
	left := copy(o.queue, o.queue[o.head:])
	clear(o.queue[left:])
	o.queue, o.head = o.queue[:left], 0
}

// events returns the number of events in the queue.
func (o *outbox) events() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsent()
}

// unsent is events for a caller that holds o.mu.
func (o *outbox) unsent() (n int) {
	for i := range o.queue[o.head:] {
		if o.queue[o.head+i].bound == nil {
			n++
		}
	}
	return n
}

// unconfirmed returns the number of events that no hub has confirmed, lost ones aside.
func (o *outbox) unconfirmed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsent() + o.confirmations.handed.messages - o.confirmations.confirmed.messages
}

// isIdle reports whether there is no hub, and nothing for the next one. It is false after
// close, which empties the queue.
func (o *outbox) isIdle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ctx.Err() == nil && o.line == nil && o.unsent() == 0 && o.confirmations.handed == o.confirmations.confirmed
}

// current returns the line to which messages are passed, or nil.
func (o *outbox) current() *protocol.Line {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.line
}

// resume passes messages to line from now on.
func (o *outbox) resume(line *protocol.Line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = line
	o.confirmations.line = line
	if o.back != nil {
		close(o.back)
		o.back = nil
	}
	o.pump()
}

// await waits for a line to which messages are passed, and returns it.
func (o *outbox) await(ctx context.Context) (*protocol.Line, error) {
	for {
		line, back := o.lookBack()
		if line != nil {
			return line, nil
		}
		select {
		case <-back:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", o.bus.disconnection(), ctx.Err())
		case <-o.bus.node.Done():
			return nil, o.bus.disconnection()
		case <-o.ctx.Done():
			return nil, driver.ErrClosed // S22
		}
	}
}

// awaitPassed waits until the events that were accepted before have left the queue, and
// reports whether they have. It does not wait for another line.
func (o *outbox) awaitPassed(ctx context.Context) bool {
	for target := math.MaxInt; ; {
		o.mu.Lock()
		target = min(target, o.queued)
		line, passed, moved := o.line, o.passed >= target, o.waitForRoom()
		o.mu.Unlock()
		if passed || line == nil {
			return passed
		}
		select {
		case <-moved:
		case <-line.Ended():
			return false
		case <-ctx.Done():
			return false
		case <-o.ctx.Done():
			return false // S22
		}
	}
}

func (o *outbox) lookBack() (*protocol.Line, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.back == nil {
		o.back = make(chan struct{})
	}
	return o.line, o.back
}

// pause holds messages back. The line still sends the frames that it has.
func (o *outbox) pause() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = nil
	o.signalRoom() // awaitPassed does not wait for another line
}

// cut handles the end of the line: requests, answers and syncs leave the queue.
// It returns the number of events that the hub has not confirmed.
func (o *outbox) cut() tally {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = nil
	o.compact()
	o.queue = slices.DeleteFunc(o.queue, func(e outgoing) bool {
		if e.bound != nil {
			o.discard(&e)
		}
		return e.bound != nil
	})
	o.signalRoom()
	return o.confirmations.cut()
}

// close drops the queue and ends the pump.
func (o *outbox) close() {
	o.end()
	o.mu.Lock()
	o.compact()
	for i := range o.queue {
		o.discard(&o.queue[i])
	}
	o.queue = nil
	o.signalRoom()
	o.confirmations.end()
	o.mu.Unlock()
	o.pumps.Wait()
}
