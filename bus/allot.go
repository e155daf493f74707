package bus

import (
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
)

// allotment is memory for the deliveries of one event inside this process, so
// that each subscription need not allocate. It grows by a few deliveries at a
// time: a slow subscription, or a handler that keeps its message, keeps the
// memory of those that were allocated with its own.
type allotment struct {
	taken atomic.Uint32
	first delivery // most events have one subscription
	more  atomic.Pointer[share]
}

// share is room for the next deliveries of an event.
type share struct {
	number uint32 // of the shares of the event
	room   [shareSize]delivery
}

const shareSize = 4

// The allotments of small events have their data beside the first delivery.
type (
	allotment64 struct {
		allotment
		data [64]byte
	}
	allotment128 struct {
		allotment
		data [128]byte
	}
	allotment256 struct {
		allotment
		data [256]byte
	}
)

// newAllotment returns memory for the deliveries of an event, and a copy of its
// data.
func newAllotment(data []byte) (a *allotment, own []byte) {
	n := len(data)
	switch {
	case n <= 64:
		x := new(allotment64)
		a, own = &x.allotment, x.data[:n:n]
	case n <= 128:
		x := new(allotment128)
		a, own = &x.allotment, x.data[:n:n]
	case n <= 256:
		x := new(allotment256)
		a, own = &x.allotment, x.data[:n:n]
	default:
		a, own = new(allotment), make([]byte, n)
	}
	copy(own, data)
	return a, own
}

// allot returns memory for a delivery of m. A driver may deliver from several
// goroutines: no two of them get the same.
func allot(m *driver.Message) *delivery {
	a, ok := m.Local.(*allotment)
	if !ok {
		return new(delivery)
	}
	n := a.taken.Add(1) - 1
	if n == 0 {
		return &a.first
	}
	number, at := (n-1)/shareSize, (n-1)%shareSize
	if at == 0 {
		s := &share{number: number}
		a.more.Store(s)
		return &s.room[0]
	}
	if s := a.more.Load(); s != nil && s.number == number {
		return &s.room[at]
	}
	return new(delivery) // another goroutine has yet to store the share
}
