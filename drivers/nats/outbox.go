package nats

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/megaframework/mega/bus/driver"
)

// outbox is the queue of accepted messages, in order, bounded in bytes. Any
// number of goroutines put, only the writer takes. It belongs to the Bus and
// outlives connections: a message that was not handed to a connection survives
// its end (S28). The outbox of drivers/cluster describes how the two differ.
type outbox struct {
	limit int // bytes
	wake  chan struct{}

	mu       sync.Mutex // guards the fields below
	filling  batch
	weight   int // bytes of all waiting messages, also of those in taken
	accepted uint64
	unsent   int           // waiting events and answers: those that another connection sends
	idle     bool          // the writer sleeps
	room     chan struct{} // closed when there is more room; nil without waiters

	taken batch // the writer's, as is next
	next  int   // the first message in taken that was not handed over
}

// item is a waiting message. It is small: a plain event needs no more.
type item struct {
	subject string // without its prefix
	data    []byte // a copy, as is header
	header  []pair
	size    int32 // compared with the server's limit
	kind    driver.Kind
	skip    bool     // the writer's: it is not sent
	behind  uint32   // removed messages that were accepted after it, before the next one
	special *special // nil for a plain event
}

// pair is a key of a header and its values, which are immutable.
type pair struct {
	key    string
	values []string
}

// special is the additional data of a message that is not a plain event.
type special struct {
	m     driver.Message  // without data and header
	reply string          // of a request
	ctx   context.Context // of the caller of a request
	link  *link           // the only connection that may carry a request
	inbox *topic          // of the answers to a request
}

// overhead is the approximate memory of a message beyond its bytes.
const overhead = 100

func (it *item) weight() int { return int(it.size) + len(it.subject) + overhead }

// wire returns the approximate number of bytes of a message on the connection.
func (it *item) wire() int {
	const verb = 24
	return int(it.size) + len(it.subject) + verb
}

// batch is messages in order, with copies of their data and headers.
type batch struct {
	items  []item
	data   arena[byte]
	header arena[pair]
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, wake: make(chan struct{}, 1)}
}

// put copies a message into the queue. It waits for room in every state of the
// connection, as the driver interface requires (S6); a request waits only while its
// link lasts (S23). One message always fits.
func (o *outbox) put(ctx context.Context, m *driver.Message, it *item, header []pair, closing <-chan struct{}) error {
	room := o.tryPut(m.Data, it, header)
	if room == nil {
		return nil
	}
	ctx, cancel := driver.RoomContext(ctx, m) // S6
	defer cancel()
	var cut <-chan struct{}
	if it.kind == driver.Request {
		cut = it.special.link.over
	}
	for room != nil {
		select {
		case <-room:
		case <-cut:
			return driver.ErrDisconnected // S23
		case <-closing:
			return driver.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%w: %d bytes wait for the server: %w", driver.ErrOverloaded, o.limit, ctx.Err())
		}
		room = o.tryPut(m.Data, it, header)
	}
	return nil
}

// tryPut returns nil if it has copied the message, or else a channel that is
// closed when there is more room.
func (o *outbox) tryPut(data []byte, it *item, header []pair) <-chan struct{} {
	room, idle := o.append(data, it, header)
	if idle {
		wake(o.wake) // without the lock, which the writer takes first
	}
	return room
}

func (o *outbox) append(data []byte, it *item, header []pair) (room <-chan struct{}, idle bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if weight := it.weight(); o.weight == 0 || o.weight+weight <= o.limit {
		o.weight += weight
		o.add(data, it, header)
		idle, o.idle = o.idle, false
		return nil, idle
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room, false
}

// add appends a copy of the message. The caller holds o.mu.
func (o *outbox) add(data []byte, it *item, header []pair) {
	o.accepted++
	if it.kind != driver.Request {
		o.unsent++
	}
	o.filling.add(data, it, header)
}

// add appends a copy of the message.
func (b *batch) add(data []byte, it *item, header []pair) {
	b.items = append(b.items, *it)
	own := &b.items[len(b.items)-1]
	own.data = b.data.copy(data)
	if len(header) > 0 {
		own.header = b.header.copy(header)
	}
}

// count returns how many messages were accepted so far.
func (o *outbox) count() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.accepted
}

// left returns how many of the waiting messages another connection sends: requests end
// with theirs.
func (o *outbox) left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsent
}

// abandon removes the requests, which have failed with their connection (S12), and
// returns the number of those before the first other message. No writer runs meanwhile.
func (o *outbox) abandon() (first uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := slices.Concat(o.taken.items[o.next:], o.filling.items)
	if len(waiting) == o.unsent {
		return 0
	}
	var kept batch
	o.weight = 0
	for i := range waiting {
		it := &waiting[i]
		switch last := len(kept.items) - 1; {
		case it.kind != driver.Request:
			kept.add(it.data, it, it.header)
			o.weight += it.weight()
		case last < 0:
			first++
		default:
			kept.items[last].behind++
		}
	}
	o.taken.reset()
	o.next = 0
	o.filling = kept
	o.freed()
	return first
}

// freed wakes the calls that wait for room. The caller holds o.mu.
func (o *outbox) freed() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// peek returns the remaining messages of the current batch, or else all waiting
// messages. It returns none if the writer should sleep. Only the writer calls
// peek and drop.
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

// drop removes the first n messages of peek, and frees their room.
func (o *outbox) drop(n int) {
	done := o.taken.items[o.next : o.next+n]
	o.next += n
	weight, sent := 0, 0
	for i := range done {
		weight += done[i].weight()
		if done[i].kind != driver.Request {
			sent++
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.weight -= weight
	o.unsent -= sent
	o.freed()
}

// wake makes the receiver of c check again. c has capacity 1.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reset empties the batch and keeps a moderate amount of its memory.
func (b *batch) reset() {
	const most = 32 << 10 // messages
	clear(b.items)        // free the memory that they refer to
	b.items = b.items[:0]
	if cap(b.items) > most {
		b.items = nil
	}
	b.data.reset()
	b.header.reset()
}

// arena holds slices in reusable chunks.
type arena[T any] struct {
	chunks [][]T // the last one has room
	free   [][]T
}

// chunkSize is the number of elements in a chunk of an arena.
const chunkSize = 32 << 10

// copy returns a copy of data, never nil.
func (a *arena[T]) copy(data []T) []T {
	if len(data) > chunkSize/4 {
		return slices.Clone(data)
	}
	return append(a.take(len(data)), data...)
}

// take returns an empty slice with room for n elements, not many more than a
// chunk has.
func (a *arena[T]) take(n int) []T {
	last := len(a.chunks) - 1
	if last < 0 || cap(a.chunks[last])-len(a.chunks[last]) < n {
		a.grow(n)
		last = len(a.chunks) - 1
	}
	c := a.chunks[last]
	start := len(c)
	a.chunks[last] = c[:start+n]
	return c[start : start : start+n]
}

func (a *arena[T]) grow(n int) {
	if last := len(a.free) - 1; last >= 0 && cap(a.free[last]) >= n {
		a.chunks, a.free = append(a.chunks, a.free[last]), a.free[:last]
		return
	}
	a.chunks = append(a.chunks, make([]T, 0, max(n, chunkSize/a.scale())))
}

// scale makes chunks of large elements shorter.
func (a *arena[T]) scale() int {
	if _, bytes := any(a).(*arena[byte]); bytes {
		return 1
	}
	return 64
}

// reset removes the slices and keeps some of their memory for reuse.
func (a *arena[T]) reset() {
	const most = 128
	for _, c := range a.chunks {
		if len(a.free) < most {
			a.free = append(a.free, c[:0])
		}
	}
	clear(a.chunks)
	a.chunks = a.chunks[:0]
}
