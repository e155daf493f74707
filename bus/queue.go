package bus

import "sync/atomic"

// queue is deliveries in their order, linked through themselves: it takes no
// room of its own, and all of it is taken at once.
type queue struct {
	first, last *delivery
	len, bytes  int
}

func (q *queue) push(d *delivery) {
	if q.last == nil {
		q.first = d
	} else {
		q.last.next = d
	}
	q.last = d
	q.len++
	q.bytes += d.weight()
}

// pop takes the oldest out, or returns nil.
func (q *queue) pop() *delivery {
	d := q.first
	if d == nil {
		return nil
	}
	q.first, d.next = d.next, nil
	if q.first == nil {
		q.last = nil
	}
	q.len--
	q.bytes -= d.weight()
	return d
}

// weight is what a message counts in a buffer: its data and its header.
func (d *delivery) weight() int {
	if d.msg.Header == nil {
		return len(d.msg.Data)
	}
	return len(d.msg.Data) + headerSize(d.msg.Header)
}

func headerSize(h Headers) (size int) {
	for key, values := range h {
		for _, v := range values {
			size += len(key) + len(v)
		}
	}
	return size
}

// batch is what the one runner of a subscription has taken out of its queue,
// and how far it is with it.
type batch struct {
	first *delivery // the next one; the runner's alone

	len, bytes int // when it was taken; guarded by the subscription's mu
	// started is how many of them were started, and their weight, in one word,
	// so that a publisher that finds the buffer nearly full can see how full.
	// The runner alone writes it.
	started atomic.Uint64
}

const (
	weightBits = 40 // a terabyte
	maxWeight  = 1<<weightBits - 1
)

// left is what has not been started. The caller holds the subscription's mu.
func (b *batch) left() (messages, bytes int) {
	if b.len == 0 {
		return 0, 0
	}
	s := b.started.Load()
	return b.len - int(s>>weightBits), b.bytes - int(s&maxWeight)
}

// next takes the next one out, or returns nil. The runner alone calls it.
func (b *batch) next() *delivery {
	d := b.first
	if d != nil {
		b.first, d.next = d.next, nil
		b.started.Store(b.started.Load() + 1<<weightBits + uint64(d.weight()))
	}
	return d
}

// fill takes all of q; the batch before is done. The caller holds the
// subscription's mu.
func (b *batch) fill(q *queue) {
	b.first, b.len, b.bytes = q.first, q.len, q.bytes
	b.started.Store(0)
	*q = queue{}
}
