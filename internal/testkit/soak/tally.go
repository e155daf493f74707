package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
)

// tally contains the counters of a worker.
type tally struct {
	mu       sync.Mutex
	sum      Report
	calmed   Counts
	seq      uint64
	felt     time.Time         // when the process was last seen to run
	stood    time.Time         // when it continued after a stop
	from     map[string]uint64 // the next number of each sender, by the subscription of each message
	holes    uint64            // messages that are missing in the sequences
	reported uint64            // messages that were reported as missing
	gaps     bool              // whether a gap of unknown size was reported
	shared   map[string]uint64 // the highest number of each sender, by the group
}

func newTally() *tally {
	t := &tally{from: map[string]uint64{}, shared: map[string]uint64{}}
	t.sum.Failed = map[string]uint64{}
	return t
}

func (t *tally) next() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq++
	return t.seq
}

// each checks a message for the subscription that receives every message. The
// messages of a sender arrive in order.
func (t *tally) each(m *bus.Msg) {
	seq, from := read(m)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Received++
	switch {
	case m.Missed < 0:
		t.gaps = true
	default:
		t.reported += uint64(m.Missed)
	}
	next, known := t.from[from]
	switch {
	case !known:
	case seq < next:
		t.addWrong(fmt.Sprintf("message %d of %s came again, or after %d", seq, from, next-1))
	default:
		t.holes += seq - next
	}
	t.from[from] = seq + 1
	if t.holes > t.reported && !t.gaps {
		t.addWrong(fmt.Sprintf("%d messages are missing before %d of %s, %d were reported", t.holes, seq, from, t.reported))
		t.reported = t.holes
	}
}

// group checks a message for the member of the group, which receives a part of the
// messages of each sender, in order.
func (t *tally) group(m *bus.Msg) {
	seq, from := read(m)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Received++
	if last := t.shared[from]; seq <= last {
		t.addWrong(fmt.Sprintf("the group was given message %d of %s after %d", seq, from, last))
	}
	t.shared[from] = seq
}

func (t *tally) calm(count func(*Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count(&t.calmed)
}

func (t *tally) counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calmed
}

func (t *tally) granted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Grants++
}

func (t *tally) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Answered++
}

// legal lists the errors that users must expect while processes are killed.
var legal = map[string][]error{
	"acquire": {lock.ErrNotAcquired, context.DeadlineExceeded},
	"request": {bus.ErrNoResponders, bus.ErrDisconnected},
}

// beat is the interval at which a process checks that it runs. A much longer time
// between two checks means that it was stopped, or had no processor.
const beat = 20 * time.Millisecond

// pulse records the times at which the process was stopped, until ctx ends.
func (t *tally) pulse(ctx context.Context) {
	for ctx.Err() == nil {
		t.mu.Lock()
		t.feel()
		t.mu.Unlock()
		pause(ctx, beat)
	}
}

// feel needs t.mu held.
func (t *tally) feel() {
	now := time.Now()
	if !t.felt.IsZero() && now.Sub(t.felt) > 10*beat {
		t.stood = now
	}
	t.felt = now
}

// stoodStill reports whether running calls may have timed out because the process
// was stopped. It needs t.mu held.
func (t *tally) stoodStill() bool {
	t.feel()
	return time.Since(t.stood) < 2*time.Second
}

// failed counts an error. An error that is not legal is a violation, except a
// timeout after a stop of the process.
func (t *tally) failed(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Failed[what]++
	if t.stoodStill() && errors.Is(err, lock.ErrUnavailable) {
		return
	}
	if !slices.ContainsFunc(legal[what], func(e error) bool { return errors.Is(err, e) }) {
		t.addWrong(what + ": " + err.Error())
	}
}

func (t *tally) expect(what string, err error) {
	if err != nil {
		t.wrong(what + ": " + err.Error())
	}
}

func (t *tally) wrong(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addWrong(text)
}

// addWrong records a violation. It keeps only the first few, and needs t.mu held.
func (t *tally) addWrong(text string) {
	if len(t.sum.Wrong) < 20 {
		t.sum.Wrong = append(t.sum.Wrong, text)
	}
}

func (t *tally) report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.sum
	r.Failed, r.Wrong = maps.Clone(r.Failed), slices.Clone(r.Wrong)
	return r
}

// openFiles returns the number of open descriptors of the process, or 0 if the
// system does not report it.
func openFiles() int {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			return len(entries)
		}
	}
	return 0
}
