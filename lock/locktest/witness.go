package locktest

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// witness sees what explains a failure on real time that cannot be repeated: by
// how much the timers of this process were late while a case ran, and its
// goroutines at the failure.
type witness struct {
	stop   chan struct{}
	over   sync.WaitGroup
	late   time.Duration // the most that a timer was late; read after the end
	stacks []byte        // at the failure
}

// tick is how often a witness looks.
const tick = 20 * time.Millisecond

// newWitness starts to look, unless time is fake: there no timer is late.
func (h Harness) newWitness() *witness {
	w := &witness{stop: make(chan struct{})}
	if !h.FakeTime {
		w.over.Go(w.watch)
	}
	return w
}

func (w *witness) watch() {
	for {
		before := time.Now()
		select {
		case <-time.After(tick):
			w.late = max(w.late, time.Since(before)-tick)
		case <-w.stop:
			return
		}
	}
}

// failed keeps the goroutines as they are now. A nil witness does nothing.
func (w *witness) failed() {
	if w != nil && w.stacks == nil {
		const most = 256 << 10
		buf := make([]byte, most)
		w.stacks = buf[:runtime.Stack(buf, true)]
	}
}

// end stops looking.
func (w *witness) end() {
	close(w.stop)
	w.over.Wait()
}

// report logs what was seen of a case that has failed. It is called after end.
func (w *witness) report(t *testing.T) {
	t.Helper()
	t.Logf("while the case ran, timers of this process were up to %v late; goroutines at the failure:\n%s", w.late, w.stacks)
}
