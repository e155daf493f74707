package bus

import "sync/atomic"

// queue contains messages in order. It links their deliveries, so that it needs no
// further memory, and a runner can take all of it at once. Marks between the
// messages record where others were lost. Two marks are never adjacent.
type queue struct {
	first, last *delivery
	len, bytes  int // of the messages: marks take no room (S10)
}

func (q *queue) push(d *delivery) {
	q.link(d)
	q.len++
	q.bytes += d.weight()
}

func (q *queue) link(d *delivery) {
	if q.last == nil {
		q.first = d
	} else {
		q.last.next = d
	}
	q.last = d
}

// mark marks the end of the queue as the place where n messages were lost.
func (q *queue) mark(n int) {
	if q.last != nil && q.last.mark {
		q.last.msg.Missed = merged(q.last.msg.Missed, n)
		return
	}
	q.link(newMark(n))
}

// unlink takes the first message or mark out.
func (q *queue) unlink() *delivery {
	d := q.first
	q.first, d.next = d.next, nil
	if q.first == nil {
		q.last = nil
	}
	return d
}

// pop takes the oldest message out, or returns nil. A mark before it is
// dropped: the caller has taken it by passMark if it matters.
func (q *queue) pop() *delivery {
	q.passMark()
	if q.first == nil {
		return nil
	}
	d := q.unlink()
	q.len--
	q.bytes -= d.weight()
	return d
}

// passMark takes the mark at the head of the queue out and returns its loss,
// or 0.
func (q *queue) passMark() int {
	if q.atMark() {
		return q.unlink().msg.Missed
	}
	return 0
}

// atMark reports whether a mark is at the head of the queue.
func (q *queue) atMark() bool { return q.first != nil && q.first.mark }

// lose takes the oldest message out, if there is one, and marks its place.
func (q *queue) lose() *delivery {
	if q.len == 0 {
		return nil // a mark stays: its loss is not reported yet
	}
	lost := merged(q.passMark(), 1)
	d := q.pop()
	m := newMark(merged(lost, q.passMark()))
	m.next, q.first = q.first, m
	if q.last == nil {
		q.last = m
	}
	return d
}

// weight returns the size of a message in a buffer: its data and its header.
func (d *delivery) weight() int { return weightOf(d.msg.Data, d.msg.Header) }

// The approximate memory of a key and of a value of a header beyond their bytes, as
// measured.
const (
	keyMemory   = 72
	valueMemory = 24
)

// weightOf returns the size of a message with that data and header in a buffer. A
// header with more values than MaxKeys counts with all of its memory: foreign
// publishers may send thousands of keys of a few bytes.
func weightOf(data []byte, h Headers) int {
	if h == nil {
		return len(data)
	}
	size, values := headerSize(h)
	if values > MaxKeys {
		size += len(h)*keyMemory + values*valueMemory
	}
	return len(data) + size
}

// headerSize returns the bytes of the keys and values of a header, where a key counts
// for each of its values, and the number of the values.
func headerSize(h Headers) (size, values int) {
	for key, list := range h {
		for _, v := range list {
			size += len(key) + len(v)
		}
		values += len(list)
	}
	return size, values
}

// batch contains the messages that the only runner of a subscription has taken out
// of the queue, and its progress.
type batch struct {
	len, bytes int // when it was taken; guarded by the subscription's mu
	_          cacheLine

	first *delivery // the next one; the runner's alone
	// started contains the number and the weight of the started messages in one
	// word. A publisher that finds the buffer nearly full reads it to learn the
	// exact room. Only the runner writes it.
	started atomic.Uint64
}

const (
	weightBits = 40 // a terabyte
	maxWeight  = 1<<weightBits - 1
)

// left returns the number and size of messages that were not started. The caller
// holds the subscription's mu.
func (b *batch) left() (messages, bytes int) {
	if b.len == 0 {
		return 0, 0
	}
	s := b.started.Load()
	return b.len - int(s>>weightBits), b.bytes - int(s&maxWeight)
}

// next takes the next message or mark out, or returns nil. The runner alone
// calls it.
func (b *batch) next() *delivery {
	d := b.first
	if d == nil {
		return nil
	}
	b.first, d.next = d.next, nil
	if !d.mark {
		b.started.Store(b.started.Load() + 1<<weightBits + uint64(d.weight()))
	}
	return d
}

// fill takes all of q, unless there is nothing but a mark, which waits for its
// message; the batch before is done. The caller holds the subscription's mu.
func (b *batch) fill(q *queue) {
	b.first, b.len, b.bytes = nil, q.len, q.bytes
	b.started.Store(0)
	if q.len > 0 {
		b.first = q.first
		*q = queue{}
	}
}
