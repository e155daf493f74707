package nats

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/megaframework/mega/bus/driver"
)

// outbox is the queue of accepted messages, in order, bounded in bytes. Any
// number of goroutines put, the writer alone takes. It belongs to the Bus and
// outlives connections: a message that was not handed to one survives its end
// (S28).
type outbox struct {
	limit int // bytes
	wake  chan struct{}

	mu       sync.Mutex // guards the fields below
	filling  batch
	weight   int // bytes of all messages that wait, those that the writer has taken too
	accepted uint64
	idle     bool          // the writer sleeps
	room     chan struct{} // closed when there is more room; nil if nobody waits
	headers  []driver.Header

	taken batch // the writer's, as is next
	next  int   // the first message in taken that was not handed over
}

// item is a message that waits.
type item struct {
	m      driver.Message
	prefix string // before m.Subject, on NATS
	reply  string
	size   int             // against the server's limit
	ctx    context.Context // of the caller of a request; nil for other kinds
	link   uint64          // the only connection that may carry a request
	skip   bool            // the writer's: it is not sent
}

// overhead is what a message takes beyond its bytes, about.
const overhead = 200

func (it *item) weight() int { return it.size + len(it.prefix) + len(it.m.Subject) + overhead }

// wire is the bytes that a message takes on the connection, about.
func (it *item) wire() int { return it.size + len(it.prefix) + len(it.m.Subject) + len(it.reply) + 16 }

// batch is messages in order, with copies of their data.
type batch struct {
	items []item
	data  arena
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, wake: make(chan struct{}, 1)}
}

// put copies a message into the queue. It waits for room, in every state of the
// connection, as the boundary says (S6). One message always fits.
func (o *outbox) put(ctx context.Context, it *item, closing <-chan struct{}) error {
	room := o.tryPut(it)
	if room == nil {
		return nil
	}
	ctx, cancel := driver.RoomContext(ctx, &it.m)
	defer cancel()
	for room != nil {
		select {
		case <-room:
		case <-closing:
			return driver.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%w: %d bytes wait for the server: %w", driver.ErrOverloaded, o.limit, ctx.Err())
		}
		room = o.tryPut(it)
	}
	return nil
}

// tryPut returns nil if it has copied the message, or else a channel that is
// closed when there is more room.
func (o *outbox) tryPut(it *item) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if weight := it.weight(); o.weight == 0 || o.weight+weight <= o.limit {
		o.weight += weight
		o.add(it)
		return nil
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// add appends a copy of the message. The caller holds o.mu.
func (o *outbox) add(it *item) {
	o.accepted++
	o.filling.items = append(o.filling.items, *it)
	own := &o.filling.items[len(o.filling.items)-1].m
	own.Data = o.filling.data.copy(it.m.Data)
	if it.m.Header != nil {
		own.Header = o.copyHeader(it.m.Header)
	}
	if o.idle {
		o.idle = false
		wake(o.wake)
	}
}

// copyHeader copies the map, which its owner uses again. The values are shared:
// nobody changes them. The caller holds o.mu.
func (o *outbox) copyHeader(h driver.Header) driver.Header {
	var own driver.Header
	if n := len(o.headers); n > 0 {
		own, o.headers = o.headers[n-1], o.headers[:n-1]
	} else {
		own = make(driver.Header, len(h))
	}
	for key, values := range h {
		own[key] = values
	}
	return own
}

// count returns how many messages were accepted so far.
func (o *outbox) count() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.accepted
}

// peek returns the messages that wait, as many as there are in a row, or none
// if the writer should sleep. It is the writer's, as is drop.
func (o *outbox) peek() []item {
	if o.next < len(o.taken.items) {
		return o.taken.items[o.next:]
	}
	o.taken.reset()
	o.next = 0
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.filling.items) == 0 {
		o.idle = true
		return nil
	}
	o.filling, o.taken = o.taken, o.filling
	return o.taken.items
}

// drop removes the first n messages of peek, and makes room for others.
func (o *outbox) drop(n int) {
	done := o.taken.items[o.next : o.next+n]
	o.next += n
	weight := 0
	for i := range done {
		weight += done[i].weight()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.weight -= weight
	for i := range done {
		o.reuse(done[i].m.Header)
	}
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// reuse keeps the map of a header that was sent. The caller holds o.mu.
func (o *outbox) reuse(h driver.Header) {
	const most, keys = 256, 8 // a map that was large is costly to clear
	if h == nil || len(h) > keys || len(o.headers) >= most {
		return
	}
	clear(h)
	o.headers = append(o.headers, h)
}

// wake makes the receiver of c look again. c has one place.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reset empties the batch and keeps a moderate amount of its memory.
func (b *batch) reset() {
	const most = 16 << 10 // messages
	clear(b.items)        // contexts and subjects are free
	b.items = b.items[:0]
	if cap(b.items) > most {
		b.items = nil
	}
	b.data.reset()
}

// arena holds copies of bytes in chunks, which are used again.
type arena struct {
	chunks [][]byte // the last one has room
	free   [][]byte
}

const chunkSize = 64 << 10

// copy returns a copy of data, never nil.
func (a *arena) copy(data []byte) []byte {
	if len(data) == 0 {
		return []byte{}
	}
	if len(data) > chunkSize/4 {
		return slices.Clone(data)
	}
	if n := len(a.chunks); n == 0 || cap(a.chunks[n-1])-len(a.chunks[n-1]) < len(data) {
		a.grow()
	}
	c := &a.chunks[len(a.chunks)-1]
	start := len(*c)
	*c = append(*c, data...)
	return (*c)[start:len(*c):len(*c)]
}

func (a *arena) grow() {
	if n := len(a.free); n > 0 {
		a.chunks, a.free = append(a.chunks, a.free[n-1]), a.free[:n-1]
		return
	}
	a.chunks = append(a.chunks, make([]byte, 0, chunkSize))
}

// reset forgets the copies and keeps up to 1 MiB of memory for others.
func (a *arena) reset() {
	const most = 16
	for _, c := range a.chunks {
		if len(a.free) < most {
			a.free = append(a.free, c[:0])
		}
	}
	a.chunks = a.chunks[:0]
}
