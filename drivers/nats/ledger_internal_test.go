package nats

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// Ten denied requests cause ten reports. A report that failed all ten would
// leave nine that fail requests which are allowed by then.
func TestEachReportOfTheServerFailsOneRequest(t *testing.T) {
	var l ledger
	denied := errors.New("denied")
	reported := func(want uint64) {
		t.Helper()
		if r, found := l.refuse("a", denied); !found || r.id != want {
			t.Errorf("got request %d, %v; want %d", r.id, found, want)
		}
	}
	l.pinged.requests = []request{{subject: "a", id: 1}, {subject: "b", id: 2}}
	l.handed.requests = []request{{subject: "a", id: 3}}
	l.written.requests = []request{{subject: "a", id: 4}}
	reported(4) // earlier ones may have been accepted
	reported(3)
	l.written.requests = append(l.written.requests, request{subject: "a", id: 5}, request{subject: "a", id: 6})
	reported(5) // later ones may be
	reported(6)
	reported(1)
	if r, found := l.refuse("a", denied); found || l.trouble.refused != 1 {
		t.Errorf("got request %d, %v and %d refused messages; want a refused message", r.id, found, l.trouble.refused)
	}
	l.done(l.written)
	l.pong()
	l.ping()
	l.pong()
	l.handed.requests = []request{{subject: "a", id: 7}, {subject: "b", id: 8}, {subject: "a", id: 9}, {subject: "b", id: 10}}
	reported(7) // the subject was denied at last
	if r, found := l.refuse("b", denied); !found || r.id != 10 {
		t.Errorf("got request %d, %v; want the newest on a subject that was allowed", r.id, found)
	}
	l.ping()
	l.pong()
	l.handed.requests = []request{{subject: "a", id: 11}, {subject: "a", id: 12}}
	reported(12) // the subject was allowed at last
}

// A Flush whose PING was under way has nothing more to wait for if the
// connection has ended without a loss. The next PING may be seconds away.
func TestFlushEndsWithAConnectionThatLostNothing(t *testing.T) {
	flushEnds(t, 0, func(l *ledger) {
		l.ping()
		l.cut(errors.New("EOF"))
	})
}

// flushEnds fails t unless a Flush of the first target messages ends after what
// happens to the ledger.
func flushEnds(t *testing.T, target uint64, happens func(*ledger)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		done := make(chan error, 1)
		go func() { done <- l.confirmed(t.Context(), target, func() {}, nil) }()
		synctest.Wait()
		happens(&l)
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("it waits until %v, for the next PING", time.Until(l.due(5*time.Second)))
			l.release(true)
		}
	})
}

// A chunk is entered again if one of its messages could not be sent. Those that
// were sent before may have expired by then.
func TestAMessageThatWasHandedOverDoesNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(Config{}.withDefaults())
		defer b.end()
		w := &writer{bus: b, link: b.newLink()}
		m := driver.Message{Subject: "a", Deadline: time.Now().Add(time.Second)}
		items := []item{{subject: "a", size: 10, special: newSpecial(&m)}}
		_, planned := w.plan(items, maxWindow)
		time.Sleep(2 * time.Second)
		if again := w.sequence(items); planned.messages != 1 || again.messages != 1 {
			t.Errorf("%d messages were handed over, and %d are recorded", planned.messages, again.messages)
		}
	})
}

// A message may be larger than the window: it is sent when nothing is unconfirmed.
// Without messages, PINGs are as rare as the interval allows.
func TestAnIdleLinkTakesOneMessageOfAnySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		l.ping()
		l.pong()
		if n := l.space(time.Now(), time.Second); n != maxWindow {
			t.Errorf("there is space for %d bytes, want %d", n, maxWindow)
		}
		const interval = 5 * time.Second
		if next := l.due(interval); !next.Equal(time.Now().Add(interval)) {
			t.Errorf("the next PING is due in %v, want %v", time.Until(next), interval)
		}
		l.done(sequence{count: 1, messages: 1, wire: 100})
		if next := l.due(interval); !next.Before(time.Now().Add(interval)) {
			t.Errorf("a message waits %v for its confirmation", time.Until(next))
		}
	})
}

// Each message that no connection can carry is one that was lost (S28).
func TestADiscardedMessageIsCountedOnce(t *testing.T) {
	var l ledger
	cause := errors.New("too large")
	l.discard(10, cause)
	l.discard(20, cause)
	if got, want := l.state(), (trouble{messages: 2, bytes: 30, err: cause}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A Flush ends with the first loss, which it reports: other messages may have to wait
// for the next connection.
func TestFlushEndsWithALoss(t *testing.T) {
	flushEnds(t, 2, func(l *ledger) { l.discard(10, errors.New("too large")) })
}
