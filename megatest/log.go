package megatest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log is the log of an application, at every level.
type Log struct {
	t testing.TB

	mu      sync.Mutex // guards the fields below
	rest    []byte     // the start of an incomplete line
	records []Record
	more    chan struct{} // closed and replaced at each record
}

// Record is one record of a log: its attributes by name, with dotted names for
// attributes in groups. The built-in ones are time, level and msg.
type Record map[string]any

func newLog(t testing.TB) *Log {
	t.Helper()
	return &Log{t: t, more: make(chan struct{})}
}

// Write implements [io.Writer] for the application's logger. A line that is no
// record is kept with its text as msg.
func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, text...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		l.records = append(l.records, record(line))
		l.rest = rest
		close(l.more)
		l.more = make(chan struct{})
	}
}

func record(line []byte) Record {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		return Record{"msg": string(line)}
	}
	r := Record{}
	r.add("", fields)
	return r
}

func (r Record) add(prefix string, fields map[string]any) {
	for name, v := range fields {
		if group, ok := v.(map[string]any); ok {
			r.add(prefix+name+".", group)
			continue
		}
		r[prefix+name] = v
	}
}

// Records returns the records with that message, or all records for "".
func (l *Log) Records(msg string) (found []Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if msg == "" || r["msg"] == msg {
			found = append(found, r)
		}
	}
	return found
}

// Expect waits until a record with that message and these attributes, given as
// name, value, name, value, has been logged, and returns it. Values are
// compared in their printed form. Expect ends the test after five seconds; it
// has to wait because a request is logged only after it has been answered.
func (l *Log) Expect(msg string, attrs ...any) Record {
	l.t.Helper()
	l.check(attrs)
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		r, more := l.find(msg, attrs)
		if r != nil {
			return r
		}
		select {
		case <-more:
		case <-late.C:
			l.t.Fatalf("nothing was logged like %q %v, only\n%s", msg, attrs, l)
		}
	}
}

// Never fails the test if such a record has already been logged.
func (l *Log) Never(msg string, attrs ...any) {
	l.t.Helper()
	l.check(attrs)
	if r, _ := l.find(msg, attrs); r != nil {
		l.t.Errorf("logged although it should not be: %v", r)
	}
}

// check ends the test at a name without a value, which no record has.
func (l *Log) check(attrs []any) {
	l.t.Helper()
	if len(attrs)%2 != 0 {
		l.t.Fatalf("the attribute %v has no value: want name, value, name, value", attrs[len(attrs)-1])
	}
}

func (l *Log) find(msg string, attrs []any) (Record, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r["msg"] == msg && r.has(attrs) {
			return r, l.more
		}
	}
	return nil, l.more
}

func (r Record) has(attrs []any) bool {
	for i := 0; i < len(attrs); i += 2 {
		got, ok := r[fmt.Sprint(attrs[i])]
		if !ok || fmt.Sprint(got) != fmt.Sprint(attrs[i+1]) {
			return false
		}
	}
	return true
}

// String returns the whole log, one record on each line.
func (l *Log) String() string {
	var b strings.Builder
	for _, r := range l.Records("") {
		fmt.Fprintln(&b, map[string]any(r))
	}
	return b.String()
}
