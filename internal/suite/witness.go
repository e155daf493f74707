package suite

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// witness records data that explains a failure on real time that cannot be
// reproduced: the delay of this process's timers during a case, and the
// goroutines at the failure.
type witness struct {
	stop   chan struct{}
	over   sync.WaitGroup
	late   time.Duration // maximum delay of the timers of one second; read after the end
	stacks []byte        // at the failure
}

// tick is the interval of a witness's timer.
const tick = 20 * time.Millisecond

// newWitness returns a witness. It does not watch timers on fake time, where
// none is late.
func newWitness(fakeTime bool) *witness {
	w := &witness{stop: make(chan struct{})}
	if !fakeTime {
		w.over.Go(w.watch)
	}
	return w
}

func (w *witness) watch() {
	var recent []time.Duration // delays of the timers of the last second
	for {
		before := time.Now()
		select {
		case <-time.After(tick):
			// Several delays in a row keep a heartbeat as one long delay does. Those
			// below a tick are usual on a machine that is merely busy.
			late := time.Since(before) - tick
			if late < tick {
				late = 0
			}
			recent = append(recent, late)
			recent = recent[max(0, len(recent)-int(time.Second/tick)):]
			w.late = max(w.late, sum(recent))
		case <-w.stop:
			return
		}
	}
}

func sum(all []time.Duration) (total time.Duration) {
	for _, d := range all {
		total += d
	}
	return total
}

// failed records the current goroutines. A nil witness does nothing.
func (w *witness) failed() {
	if w != nil && w.stacks == nil {
		const most = 256 << 10
		buf := make([]byte, most)
		w.stacks = buf[:runtime.Stack(buf, true)]
	}
}

// end stops the witness.
func (w *witness) end() {
	close(w.stop)
	w.over.Wait()
}

// report logs the recorded data of a failed case. It is called after end.
func (w *witness) report(t *testing.T) {
	t.Helper()
	t.Logf("while the case ran, timers of this process were up to %v late within a second; goroutines at the failure:\n%s", w.late, w.stacks)
}

// pauseLimit is the delay of the timers of one second from which on a failure may
// be the machine's: a quarter of the second that a call of a driver has.
const pauseLimit = 250 * time.Millisecond

// paused reports whether the machine paused this process for so long that a
// failure on real time proves nothing about the driver. It is called after end.
func (w *witness) paused() bool { return w.late >= pauseLimit }
