package boxes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
)

// step is the kind of a line of the log.
type step string

const (
	cleaning  step = "cleaning"
	evicted   step = "evicted" // a resident of another holder was found, and ended
	cleaned   step = "cleaned"
	preparing step = "preparing"
	prepared  step = "prepared"
	lost      step = "lost" // the holder knows that it has lost its lease
)

// event is a line of the log.
type event struct {
	At     int64  `json:"at"` // before the step begins, or after it has ended
	Step   step   `json:"step"`
	Holder string `json:"holder"`
	Slot   int    `json:"slot"`
	Fence  uint64 `json:"fence"`
	Left   string `json:"left,omitempty"` // Left.Why of the slot
	Late   bool   `json:"late,omitempty"` // the deadline of the lease had passed at At
	Err    string `json:"error,omitempty"`
}

func (e event) String() string {
	s := fmt.Sprintf("%.6fs slot %d fence %d: %s: %s", time.Duration(e.At).Seconds(), e.Slot, e.Fence, e.Holder, e.Step)
	if e.Left != "" {
		s += " (left: " + e.Left + ")"
	}
	if e.Err != "" {
		s += ": " + e.Err
	}
	return s
}

// log appends the events of one holder to the log of all holders.
type log struct {
	holder string

	mu   sync.Mutex // guards the fields below
	out  *os.File
	errs []error
}

func logFile(dir string) string { return filepath.Join(dir, "log") }

func openLog(dir, holder string) (*log, error) {
	f, err := os.OpenFile(logFile(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &log{holder: holder, out: f}, nil
}

// Close returns the errors of the log, if any.
func (l *log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(append(l.errs, l.out.Close())...)
}

// write writes a whole line at once: others append to the same file.
func (l *log) write(what step, s *lock.Slot, failed error) {
	late := !time.Now().Before(s.Deadline()) && what != lost
	e := event{At: history.Now(), Step: what, Holder: l.holder, Slot: s.Number(), Fence: s.Fence(), Late: late}
	if left := s.Left(); left != nil {
		e.Left = left.Why
	}
	if failed != nil {
		e.Err = failed.Error()
	}
	text, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.out.Write(append(text, '\n'))
	}
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

// read returns the events of a log by their time.
func read(dir string) (events []event, err error) {
	f, err := os.Open(logFile(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was opened for reading
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%.80q: %w", lines.Text(), err)
		}
		events = append(events, e)
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.At - b.At) })
	return events, lines.Err()
}
