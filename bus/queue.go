package bus

import "github.com/megaframework/mega/bus/driver"

// fifo is a queue of messages in one slice: pushed at its end, popped at head.
type fifo struct {
	items []driver.Message
	head  int
	bytes int // weight of all that is queued
}

// keptCapacity is how much room an empty queue keeps for the next burst.
const keptCapacity = 64

func (q *fifo) len() int { return len(q.items) - q.head }

func (q *fifo) push(m *driver.Message, weight int) {
	if q.head > len(q.items)/2 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, *m)
	q.bytes += weight
}

// pop takes the oldest message out.
func (q *fifo) pop() (m driver.Message) {
	m = q.items[q.head]
	q.items[q.head] = driver.Message{}
	q.head++
	q.bytes -= weigh(&m)
	if q.head == len(q.items) {
		q.items, q.head = kept(q.items), 0
	}
	return m
}

// swap takes everything out, and leaves the room that the caller has no more
// use for.
func (q *fifo) swap(spare []driver.Message) []driver.Message {
	all := q.items[q.head:]
	q.items, q.head, q.bytes = spare[:0], 0, 0
	return all
}

// kept is the slice emptied, or nothing if it is large.
func kept(items []driver.Message) []driver.Message {
	if cap(items) > keptCapacity {
		return nil
	}
	return items[:0]
}

// weigh is what a message counts in a buffer: its data and header.
func weigh(m *driver.Message) int {
	w := len(m.Data)
	for key, values := range m.Header {
		for _, v := range values {
			w += len(key) + len(v)
		}
	}
	return w
}
