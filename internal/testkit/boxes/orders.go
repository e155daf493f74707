package boxes

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/megaframework/mega/lock"
)

// Orders describe a holder of a [Storm].
type Orders struct {
	Name string
	Dir  string
	Key  string
	Size int
	TTL  time.Duration
	// Point is the point at which the holder stays until it is killed or loses
	// its slot. A holder without one takes and leaves boxes a few times before it
	// stays at work.
	Point Point
}

// Serve takes boxes until l is closed or life is at its end. It reports the slot
// each time that it has arrived at its point.
func (o Orders) Serve(l *lock.Locker, life *os.File, report func(slot int)) error {
	h, err := Open(o.Dir, o.Name, life)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		_, _ = io.Copy(io.Discard, life) // nothing but its end comes
	}()
	h.At = o.stay(ctx, report)
	p := h.Pool(o.Key, o.Size)
	for ctx.Err() == nil {
		err := h.Use(ctx, l, p, lock.TTL(o.TTL), lock.Wait(lock.Forever))
		if errors.Is(err, lock.ErrClosed) {
			break
		}
		if err != nil { // a lost slot, or an outage
			time.Sleep(time.Millisecond)
		}
	}
	<-ended
	return h.Close()
}

func (o Orders) stay(ctx context.Context, report func(slot int)) func(Point, *lock.Slot) {
	const few = 8
	turns := 0
	wait := func(s *lock.Slot) {
		select {
		case <-s.Lease.Context().Done():
		case <-ctx.Done():
		}
	}
	return func(p Point, s *lock.Slot) {
		switch {
		case p == o.Point, p == Working && o.Point == Cleaning: // its slot was clean
			report(s.Number())
			wait(s)
		case o.Point != "":
		case p == Working && turns == few:
			wait(s)
		default:
			if p == Working {
				if turns == 0 {
					report(s.Number())
				}
				turns++
			}
			time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond)
		}
	}
}
