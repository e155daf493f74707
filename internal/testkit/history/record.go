package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// event is the kind of a line.
type event string

const (
	called   event = "call"
	returned event = "return"
	ended    event = "end"  // a lease's context has ended
	gone     event = "gone" // a process has stopped running
)

// line is one line of a recording.
type line struct {
	Event   event  `json:"event"`
	Process string `json:"process"`
	ID      int64  `json:"id,omitempty"` // of the operation, within its process
	At      int64  `json:"at"`
	Op
}

// Recorder writes the operations of one process. Its methods are safe for
// concurrent use.
type Recorder struct {
	process string
	ids     atomic.Int64

	mu   sync.Mutex // guards the fields below
	out  io.WriteCloser
	errs []error
}

// NewRecorder appends the operations of the process of that name to the file at
// path. Processes may share a file; no two recorders may share a name. The
// caller must close it.
func NewRecorder(path, process string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record a history: %w", err)
	}
	return &Recorder{process: process, out: f}, nil
}

// Close closes the file and returns the errors of the recording, if any.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(append(r.errs, r.out.Close())...)
}

// Begin records the call of op and returns a function that records its outcome.
// The caller sets neither Call nor Return.
func (r *Recorder) Begin(op Op) (end func(Op)) {
	id, start := r.ids.Add(1), Now()
	op.Call = start
	r.write(line{Event: called, ID: id, At: op.Call, Op: op})
	return func(op Op) {
		op.Call, op.Return = start, Now()
		r.write(line{Event: returned, ID: id, At: op.Return, Op: op})
	}
}

// Ended records the end of a lease's context, and its last deadline.
func (r *Recorder) Ended(token string, deadline time.Time) {
	now := Now()
	r.write(line{Event: ended, At: now, Op: Op{Token: token, Deadline: onClock(deadline)}})
}

// Gone records that another process has stopped running, which ends its
// beliefs.
func (r *Recorder) Gone(process string) {
	now := Now()
	r.write(line{Event: gone, Process: process, At: now})
}

func (r *Recorder) write(l line) {
	if l.Process == "" {
		l.Process = r.process
	}
	text, err := json.Marshal(l)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.out.Write(append(text, '\n')) // whole lines, in one call: others append to the same file
	}
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// onClock converts a deadline to the clock of Now. A delay between its readings
// makes the result earlier, never later.
func onClock(deadline time.Time) int64 {
	now := Now()
	return now + int64(time.Until(deadline))
}
