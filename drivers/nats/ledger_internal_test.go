package nats

import (
	"errors"
	"testing"
)

// Ten denied requests cause ten reports. A report that failed all ten would
// leave nine that fail requests which are allowed by then.
func TestEachReportOfTheServerFailsOneRequest(t *testing.T) {
	var l ledger
	l.pinged.requests = []request{{subject: "a", id: 1}, {subject: "b", id: 2}}
	l.handed.requests = []request{{subject: "a", id: 3}}
	l.written.requests = []request{{subject: "a", id: 4}}
	denied := errors.New("denied")
	for _, want := range []uint64{1, 3, 4} {
		if r, found := l.refuse("a", denied); !found || r.id != want {
			t.Errorf("got request %d, %v; want %d", r.id, found, want)
		}
	}
	if r, found := l.refuse("a", denied); found || l.trouble.refused != 1 {
		t.Errorf("got request %d, %v and %d refused messages; want a refused message", r.id, found, l.trouble.refused)
	}
	if len(l.pinged.requests) != 1 {
		t.Error("the request on another subject has gone")
	}
}
