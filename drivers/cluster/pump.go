package cluster

import (
	"errors"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// pump starts the goroutine that passes the queue on, if it is needed. The
// caller holds o's lock.
func (o *outbox) pump() {
	if o.line == nil || o.waiting() == 0 || o.pumping || o.ctx.Err() != nil {
		return
	}
	o.pumping = true
	o.pumps.Go(func() {
		for o.pumpOnce() {
		}
	})
}

// pumpOnce passes on as much as the line takes, and waits until it takes more. It
// returns false if the pump is no longer needed.
func (o *outbox) pumpOnce() bool {
	line, late, expired, more := o.next()
	if expired > 0 {
		o.bus.callFront(func(f driver.Front) { f.Expired(expired) }) // S24
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
	if more {
		_ = line.Room(o.ctx, window/2) // next handles an error
	}
	return more
}

// next passes on as much as the line takes. It returns the line, the late
// events, the number of expired ones, and whether the pump is still needed.
func (o *outbox) next() (line *protocol.Line, late []driver.Message, expired int, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	done := 0
	var err error
	line = o.line
	for now := time.Now(); done < min(o.waiting(), maxBatch) && o.line != nil; done++ {
		e := &o.queue[o.head+done]
		if e.bound == nil && !e.deadline.IsZero() && e.deadline.Before(now) {
			expired++
			o.discard(e)
			continue
		}
		if e.bound != nil && e.bound.frame == nil {
			o.discard(e)
			continue
		}
		if late, err = o.handLate(e, late); err != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, protocol.ErrFull) {
		o.line = nil // the line has ended, and the node has not noticed yet
	}
	o.shift(done)
	// This pump goes on until the late events are served: a second pump would
	// serve the events behind them first (S5).
	o.pumping = len(late) > 0 || o.line != nil && o.waiting() > 0 && o.ctx.Err() == nil
	return line, late, expired, o.pumping
}

// handLate passes an entry of the queue on, and appends its event to late if
// the event is late. The caller holds o's lock.
func (o *outbox) handLate(e *outgoing, late []driver.Message) ([]driver.Message, error) {
	var m driver.Message
	if e.late {
		m = protocol.ReadEvent(e.frame.Body())
	}
	if err := o.hand(e); err != nil {
		return late, err
	}
	o.size -= e.size
	b := e.bound
	switch {
	case e.late:
		late = append(late, m)
	case b == nil:
		o.passed++
	default:
		b.frame = nil
		b.release()
	}
	return late, nil
}

// discard ends an entry of the queue whose frame is not sent. The caller holds
// o's lock.
func (o *outbox) discard(e *outgoing) {
	b := e.bound
	switch {
	case b == nil:
		o.passed++
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

func (b *lineBound) release() {
	if b.free != nil {
		b.free()
	}
}

func (o *outbox) served(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unserved -= n
	o.passed += n
	o.signalRoom()
	o.pump()
}
