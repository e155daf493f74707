package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/wire"
)

// outbox is the outbound queue of a process's messages, bounded in bytes. A frame
// is handed to the line at once while the line takes it; the others wait here, in
// order, and a pump hands them over. Without a line all of them wait: events for
// the next hub (S23), while requests and answers end with their own.
type outbox struct {
	bus   *Bus
	limit int

	ctx   context.Context // ends with close
	end   context.CancelFunc
	pumps sync.WaitGroup

	mu       sync.Mutex
	line     *wire.Line // nil while messages are held back
	queue    []outgoing // from head on
	head     int
	size     int           // bytes of queue
	room     chan struct{} // closed when something has left the queue; nil while nobody waits
	back     chan struct{} // closed by resume; nil while nobody waits
	pumping  bool
	unserved int // events of the queue that this process's subscriptions have not got yet
	empty    int // places in the queue whose frames were withdrawn
	receipts receipts
}

// outgoing is a place in the queue.
type outgoing struct {
	frame    *wire.Frame // of an event
	size     int
	deadline time.Time // of an event; zero for none
	late     bool      // of an event: this process's subscriptions get it when it leaves
	tied     *tied     // instead of an event
}

// tied is a request, an answer or a sync, which ends with its line. The outbox
// guards it.
type tied struct {
	line  *wire.Line
	frame *wire.Frame // nil once it has left
	free  func()      // ends the watch over the caller's context; nil without one
	given tally       // the events that were handed over before
}

const (
	// window is how many bytes may wait in the line. The frames beyond survive the
	// end of the hub (S28), and a request among them leaves with its caller (S12).
	window = 256 << 10
	// weight is what a frame counts beside its bytes.
	weight = 64
	// handful is how many frames are handed over at a time.
	handful = 1024
)

func (o *outbox) open(b *Bus, limit int) {
	o.bus, o.limit = b, limit
	o.ctx, o.end = context.WithCancel(context.Background())
	o.receipts.open(b)
}

// publish takes an event, which is this process's until f is freed.
func (o *outbox) publish(ctx context.Context, f *wire.Frame, m *driver.Message) error {
	late, err := o.put(ctx, outgoing{frame: f, size: f.Len() + weight, deadline: m.Deadline}, m)
	if err == nil && !late {
		o.bus.serve(m)
	}
	return err
}

// send takes a frame that ends with its line.
func (o *outbox) send(ctx context.Context, b *tied, m *driver.Message) error {
	_, err := o.put(ctx, outgoing{size: b.frame.Len() + weight, tied: b}, m)
	return ended(err)
}

// put hands e over or queues it, and waits for room within RoomContext. It
// reports whether e is late. Unless it fails, the frame is the outbox's.
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

// tryPut returns what to wait for if there is no room.
func (o *outbox) tryPut(ctx context.Context, e *outgoing, m *driver.Message) (late bool, room <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ctx.Err() != nil:
		return false, nil, driver.ErrClosed
	case e.tied != nil && e.tied.line != o.line:
		return false, nil, handTo(e.tied.line, e.tied.frame, 0) // its hub leaves, or is gone
	case o.line != nil && o.waiting() == 0 && o.unserved == 0:
		err := o.hand(e)
		if err == nil {
			o.line.FlushSoon() // it wakes the writer, and does not wait
			return false, nil, nil
		}
		if !errors.Is(err, wire.ErrFull) {
			o.line = nil // it has ended, which the node does not know yet
			if e.tied != nil {
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

// hand hands e to the line. It expects o locked.
func (o *outbox) hand(e *outgoing) error {
	if b := e.tied; b != nil {
		b.given = o.receipts.given
		return handTo(o.line, b.frame, window)
	}
	if err := handTo(o.line, e.frame, window); err != nil {
		return err
	}
	o.receipts.handed(e.size - weight)
	return nil
}

// handTo queues f and frees it, unless there is an error.
func handTo(line *wire.Line, f *wire.Frame, limit int) error {
	err := line.Queue(f, limit)
	if err == nil {
		f.Free()
	}
	return err
}

// push queues e. It expects o locked.
func (o *outbox) push(ctx context.Context, e *outgoing, m *driver.Message) {
	o.size += e.size
	if b := e.tied; b == nil {
		// An event is not served before one that was published earlier (S5).
		if e.late = o.line == nil || o.unserved > 0; e.late {
			o.unserved++
		}
	} else if m.Kind == driver.Request {
		size := e.size
		ctx, cancel := driver.RoomContext(ctx, m)
		stop := context.AfterFunc(ctx, func() { o.withdraw(b, size) }) // S12
		b.free = func() { stop(); cancel() }
	}
	o.queue = append(o.queue, *e)
	o.pump()
}

// withdraw takes a request whose caller has gone out of the queue. Its place
// stays for a while, empty.
func (o *outbox) withdraw(b *tied, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.frame == nil {
		return
	}
	b.frame.Free()
	b.frame = nil
	o.size -= size
	if o.empty++; o.empty > handful && o.empty > o.waiting()/2 {
		o.compact()
		o.queue = slices.DeleteFunc(o.queue, func(e outgoing) bool { return e.tied != nil && e.tied.frame == nil })
		o.empty = 0
	}
	o.tellRoom()
}

// waitForRoom expects o locked.
func (o *outbox) waitForRoom() <-chan struct{} {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// tellRoom expects o locked.
func (o *outbox) tellRoom() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// pump starts the goroutine that hands the queue over, if it is needed. It
// expects o locked.
func (o *outbox) pump() {
	if o.line == nil || o.waiting() == 0 || o.pumping || o.ctx.Err() != nil {
		return
	}
	o.pumping = true
	o.pumps.Go(func() {
		for {
			line, late, expired, more := o.next()
			if expired > 0 {
				o.bus.tell(func(f driver.Front) { f.Expired(expired) }) // S24
			}
			for i := range late {
				o.bus.serve(&late[i])
			}
			if len(late) > 0 {
				o.served(len(late))
			}
			if line != nil {
				line.Flush()
			}
			if !more {
				return
			}
			_ = line.Room(o.ctx, window/2) // next finds out why
		}
	})
}

// next hands over what the line takes. It returns the line, the events that are
// late, how many have expired, and whether the pump is still needed.
func (o *outbox) next() (line *wire.Line, late []driver.Message, expired int, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	done := 0
	var err error
	line = o.line
	for now := time.Now(); done < min(o.waiting(), handful) && o.line != nil; done++ {
		e := &o.queue[o.head+done]
		if e.tied == nil && !e.deadline.IsZero() && e.deadline.Before(now) {
			expired++
			o.discard(e)
			continue
		}
		if e.tied != nil && (e.tied.frame == nil || e.tied.line != o.line) {
			o.discard(e)
			continue
		}
		if late, err = o.handLate(e, late); err != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, wire.ErrFull) {
		o.line = nil // it has ended, which the node does not know yet
	}
	o.shift(done)
	o.pumping = o.line != nil && o.waiting() > 0 && o.ctx.Err() == nil
	return line, late, expired, o.pumping
}

// handLate hands a place of the queue over, and adds an event that is late to
// late. It expects o locked.
func (o *outbox) handLate(e *outgoing, late []driver.Message) ([]driver.Message, error) {
	var m driver.Message
	if e.late {
		m = readEvent(e.frame.Body())
	}
	if err := o.hand(e); err != nil {
		return late, err
	}
	o.size -= e.size
	if e.late {
		late = append(late, m)
	}
	if b := e.tied; b != nil {
		b.frame = nil
		b.release()
	}
	return late, nil
}

// discard ends a place of the queue whose frame is not sent. It expects o locked.
func (o *outbox) discard(e *outgoing) {
	b := e.tied
	switch {
	case b == nil:
		o.size -= e.size
		e.frame.Free()
		if e.late {
			o.unserved--
		}
	case b.frame == nil:
		o.empty--
	default:
		o.size -= e.size
		b.frame.Free()
		b.frame = nil
		b.release()
	}
}

func (b *tied) release() {
	if b.free != nil {
		b.free()
	}
}

// waiting is the number of places in the queue. It expects o locked.
func (o *outbox) waiting() int { return len(o.queue) - o.head }

// shift takes the first n out of the queue. It moves the others seldom, so that
// a long queue costs no more for each. It expects o locked.
func (o *outbox) shift(n int) {
	if n == 0 {
		return
	}
	clear(o.queue[o.head : o.head+n])
	o.head += n
	if 2*o.head >= len(o.queue) {
		o.compact()
	}
	o.tellRoom()
}

// compact moves the queue to the beginning of its memory. It expects o locked.
func (o *outbox) compact() {
	left := copy(o.queue, o.queue[o.head:])
	clear(o.queue[left:])
	o.queue, o.head = o.queue[:left], 0
}

func (o *outbox) served(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unserved -= n
	o.pump()
}

// current returns the line that messages leave by, or nil.
func (o *outbox) current() *wire.Line {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.line
}

// resume has messages leave by line.
func (o *outbox) resume(line *wire.Line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = line
	o.receipts.begin(line)
	if o.back != nil {
		close(o.back)
		o.back = nil
	}
	o.pump()
}

// await returns the line that messages leave by, as soon as there is one.
func (o *outbox) await(ctx context.Context) (*wire.Line, error) {
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
		}
	}
}

func (o *outbox) lookBack() (*wire.Line, <-chan struct{}) {
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
}

// cut ends the line: requests, answers and syncs leave the queue. It returns the
// events that the hub has not confirmed.
func (o *outbox) cut() tally {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = nil
	o.compact()
	o.queue = slices.DeleteFunc(o.queue, func(e outgoing) bool {
		if e.tied != nil {
			o.discard(&e)
		}
		return e.tied != nil
	})
	o.tellRoom()
	return o.receipts.cut()
}

// close forgets the queue and ends the pump.
func (o *outbox) close() {
	o.end()
	o.mu.Lock()
	o.compact()
	for i := range o.queue {
		o.discard(&o.queue[i])
	}
	o.queue, o.line = nil, nil
	o.tellRoom()
	o.receipts.close()
	o.mu.Unlock()
	o.pumps.Wait()
}
