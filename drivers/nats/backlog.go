package nats

const (
	chunkSize = 64 << 10
	// spare is how much memory for sending outlives a burst, in chunks.
	spare = 16
)

// backlog is bytes that wait to be sent, in chunks that are used again: one that
// was just sent is still in the processor's caches.
type backlog struct {
	first, last *chunk // the bytes, in order
	free        *chunk
	frees       int
}

type chunk struct {
	next *chunk
	sent int // bytes of data that are done
	data []byte
}

// put adds a copy of b.
func (q *backlog) put(b []byte) {
	for len(b) > 0 {
		c := q.end(1)
		n := min(len(b), cap(c.data)-len(c.data))
		c.data = append(c.data, b[:n]...)
		b = b[n:]
	}
}

// end is the chunk to add to, with room for n bytes in a row: of a chunk's size
// at most, else it has to grow.
func (q *backlog) end(n int) *chunk {
	if c := q.last; c != nil && cap(c.data)-len(c.data) >= n {
		return c
	}
	c := q.free
	if c != nil {
		q.free, c.next = c.next, nil
		q.frees--
	} else {
		c = &chunk{data: make([]byte, 0, chunkSize)}
	}
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
	return c
}

func (q *backlog) empty() bool { return q.first == nil }

// peek is what is to be sent next. It is nil if nothing is.
func (q *backlog) peek() []byte {
	if q.first == nil {
		return nil
	}
	return q.first.data[q.first.sent:]
}

// drop takes out the first n bytes, which are of one chunk.
func (q *backlog) drop(n int) {
	c := q.first
	if c == nil {
		return
	}
	if c.sent += n; c.sent < len(c.data) {
		return
	}
	if q.first = c.next; q.first == nil {
		q.last = nil
	}
	if cap(c.data) == chunkSize {
		*c = chunk{next: q.free, data: c.data[:0]}
		q.free = c
		q.frees++
	}
}

// trim gives back what a burst has left.
func (q *backlog) trim() {
	for ; q.frees > spare; q.frees-- {
		q.free = q.free.next
	}
}
