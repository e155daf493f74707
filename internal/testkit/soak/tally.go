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

// tally is what a worker counts.
type tally struct {
	mu     sync.Mutex
	sum    Report
	calmed Counts
	seq    uint64
	felt   time.Time         // when the process was last seen to run
	stood  time.Time         // when it ran again after it had stood still
	from   map[string]uint64 // the next number of each sender, by the subscription of each message
	holes  uint64            // messages that did not come in between
	told   uint64            // messages that were said to be missing
	gaps   bool              // whether it was said that nobody knows how many
	shared map[string]uint64 // the highest number of each sender, by the group
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

// each takes a message of a sender, whose messages come in their order.
func (t *tally) each(m *bus.Msg) {
	seq, from := read(m)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Received++
	switch {
	case m.Missed < 0:
		t.gaps = true
	default:
		t.told += uint64(m.Missed)
	}
	next, known := t.from[from]
	switch {
	case !known:
	case seq < next:
		t.sayWrong(fmt.Sprintf("message %d of %s came again, or after %d", seq, from, next-1))
	default:
		t.holes += seq - next
	}
	t.from[from] = seq + 1
	if t.holes > t.told && !t.gaps {
		t.sayWrong(fmt.Sprintf("%d messages are missing before %d of %s, %d were said to be", t.holes, seq, from, t.told))
		t.told = t.holes
	}
}

// group takes a message of the group's: some of a sender's, in their order.
func (t *tally) group(m *bus.Msg) {
	seq, from := read(m)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Received++
	if last := t.shared[from]; seq <= last {
		t.sayWrong(fmt.Sprintf("the group was given message %d of %s after %d", seq, from, last))
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

// legal are the errors that a user has to expect while processes are killed.
var legal = map[string][]error{
	"acquire": {lock.ErrNotAcquired, context.DeadlineExceeded},
	"request": {bus.ErrNoResponders, bus.ErrDisconnected},
}

// beat is how often a process looks whether it runs. Where much more time has
// passed it was stopped, or was not given a processor.
const beat = 20 * time.Millisecond

// pulse notices when the process stands still, until ctx ends.
func (t *tally) pulse(ctx context.Context) {
	for ctx.Err() == nil {
		t.mu.Lock()
		t.feel()
		t.mu.Unlock()
		pause(ctx, beat)
	}
}

// feel expects t locked.
func (t *tally) feel() {
	now := time.Now()
	if !t.felt.IsZero() && now.Sub(t.felt) > 10*beat {
		t.stood = now
	}
	t.felt = now
}

// stoodStill reports whether calls that were under way may have run out of their
// time while the process did not run. It expects t locked.
func (t *tally) stoodStill() bool {
	t.feel()
	return time.Since(t.stood) < 2*time.Second
}

// failed counts an error, which is wrong if it is none of the legal ones. A
// process that has stood still may find that its calls have taken too long.
func (t *tally) failed(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Failed[what]++
	if t.stoodStill() && errors.Is(err, lock.ErrUnavailable) {
		return
	}
	if !slices.ContainsFunc(legal[what], func(e error) bool { return errors.Is(err, e) }) {
		t.sayWrong(what + ": " + err.Error())
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
	t.sayWrong(text)
}

// sayWrong keeps the first few. It expects t locked.
func (t *tally) sayWrong(text string) {
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

// openFiles is how many descriptors the process has open, or 0 if the system
// does not say.
func openFiles() int {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			return len(entries)
		}
	}
	return 0
}
