package nats

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// Ten denied requests cause ten reports. A report that failed all ten would
// leave nine that fail requests which are allowed by then.
func TestEachReportOfTheServerFailsOneRequest(t *testing.T) {
	l := ledger{handed: requests("a1", "b2", "a3", "a4")}
	l.ping()
	reports(t, &l, "a", 2)
	failed(t, &l, 3, 4) // the first one was accepted, before the subject was denied
	l.handed = requests("a5", "b6", "a7", "b8")
	l.ping()
	reports(t, &l, "a", 1)
	reports(t, &l, "b", 1)
	failed(t, &l, 5, 8) // the second one on a was accepted, after the subject was allowed
	l.handed = requests("a9", "a10")
	l.ping()
	reports(t, &l, "a", 1)
	failed(t, &l, 10)
	if l.refuse("a", errDenied) || l.trouble.refused != 1 {
		t.Errorf("%d refused events, want 1", l.trouble.refused)
	}
}

// Reports may arrive while later requests on the subject are on their way.
func TestReportsFailTheRequestsInTheirOrder(t *testing.T) {
	l := ledger{handed: requests("a1", "a2", "a3")}
	reports(t, &l, "a", 1)
	l.ping()
	l.written = requests("a4")
	reports(t, &l, "a", 2)
	l.done(l.written)
	l.written = requests("a5")
	failed(t, &l)
	reports(t, &l, "a", 1)
	l.ping()
	reports(t, &l, "a", 1) // the last request overtook the PING
	failed(t, &l, 1, 2, 3)
	if !l.done(l.written) {
		t.Error("no PING is due for the last refused request")
	}
	l.ping()
	failed(t, &l, 4, 5)
}

// A refusal on an earlier connection does not show which requests this one refuses.
func TestReportsOfAnEndedConnectionFailNoLaterRequest(t *testing.T) {
	l := ledger{handed: requests("a1")}
	l.ping()
	reports(t, &l, "a", 1)
	failed(t, &l, 1)
	l.handed = requests("a2")
	reports(t, &l, "a", 1)
	l.cut(errors.New("EOF"), 0)
	l.restart()
	l.handed = requests("a3", "a4")
	l.ping()
	reports(t, &l, "a", 1)
	failed(t, &l, 4) // the first one was accepted
}

// The client may report a refusal that came after a PONG before it reports the PONG.
func TestAReportThatOvertakesAPongIsOfALaterRequest(t *testing.T) {
	l := ledger{handed: requests("a1")} // accepted
	l.ping()
	l.handed = requests("a2")
	reports(t, &l, "a", 1)
	failed(t, &l)
	l.ping()
	failed(t, &l, 2)

	l.handed = requests("a3") // refused, as a2 was
	l.ping()
	reports(t, &l, "a", 1)
	l.handed = requests("a4")
	failed(t, &l)
	l.ping()
	failed(t, &l, 3)
}

var errDenied = errors.New("denied")

// requests returns a stretch of requests, each a subject of one letter and a number.
func requests(names ...string) (p sequence) {
	for _, name := range names {
		id, _ := strconv.ParseUint(name[1:], 10, 64)
		p.requests = append(p.requests, request{id: id, subject: name[:1]})
		p.count++
		p.wire += 10
	}
	return p
}

// reports has the server refuse n requests on a subject.
func reports(t *testing.T, l *ledger, subject string, n int) {
	t.Helper()
	for range n {
		if !l.refuse(subject, errDenied) {
			t.Errorf("no request on %s is unconfirmed", subject)
		}
	}
}

// failed wants a PONG to fail these requests.
func failed(t *testing.T, l *ledger, want ...uint64) {
	t.Helper()
	var got []uint64
	for _, r := range l.pong() {
		got = append(got, r.id)
		if r.err != errDenied {
			t.Errorf("request %d has failed with %v", r.id, r.err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests %v have failed, want %v", got, want)
	}
}

// A Flush whose PING was under way has nothing more to wait for if the
// connection has ended without a loss. The next PING may be seconds away.
func TestFlushEndsWithAConnectionThatLostNothing(t *testing.T) {
	flushEnds(t, 0, func(l *ledger) {
		l.ping()
		l.cut(errors.New("EOF"), 0)
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
			l.cut(nil, 0)
		}
	})
}

// A Flush has nothing to wait for if only requests are left, which have failed with
// their connection (S12). Their room is free at once.
func TestFlushEndsWithTheRequestsOfItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(Config{}.withDefaults())
		defer b.end()
		put := func(k driver.Kind) {
			m := driver.Message{Kind: k, Data: make([]byte, b.config.Buffer*2/3)}
			it := item{kind: k, size: int32(len(m.Data)), special: &special{link: &link{}}}
			if err := b.out.put(t.Context(), &m, &it, nil, nil); err != nil {
				t.Error(err)
			}
		}
		put(driver.Request)
		flushed, queued := make(chan error, 1), make(chan struct{})
		go func() { flushed <- b.Flush(t.Context()) }()
		go func() { put(driver.Event); close(queued) }()
		synctest.Wait()
		b.ledger.cut(errors.New("EOF"), b.out.abandon())
		synctest.Wait()
		select {
		case err := <-flushed:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it waits for the next connection")
		}
		<-queued
		if n := b.unconfirmed(); n != 1 || len(b.out.peek()) != 1 {
			t.Errorf("%d messages wait, want the event", n)
		}
	})
}

// Requests that have failed with their connection free their room between the messages
// that wait for the next one (S12). A Flush waits for these, and for no request.
func TestFailedRequestsFreeTheirRoomAmongEvents(t *testing.T) {
	b := newBus(Config{}.withDefaults())
	defer b.end()
	put := func(kinds ...driver.Kind) {
		for _, k := range kinds {
			m := driver.Message{Kind: k, Data: []byte{byte(b.out.count())}}
			it := item{kind: k, size: 1, special: &special{}}
			if err := b.out.put(t.Context(), &m, &it, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(driver.Request, driver.Event, driver.Request, driver.Request, driver.Answer)
	w := &writer{bus: b}
	b.ledger.done(w.sequence(b.out.peek()[:1]))
	b.out.drop(1)
	put(driver.Request, driver.Event, driver.Request)
	b.ledger.cut(errors.New("EOF"), b.out.abandon())
	items := b.out.peek()
	weight := 0
	var kept []byte
	for i := range items {
		weight += items[i].weight()
		kept = append(kept, items[i].data...)
	}
	if !slices.Equal(kept, []byte{1, 4, 6}) || b.out.weight != weight || b.out.left() != len(items) {
		t.Errorf("the messages %v wait, with room for %d of %d bytes", kept, b.out.weight, weight)
	}
	for i, resolved := range []uint64{4, 6, 8} { // the message, and the requests behind it
		b.ledger.done(w.sequence(items[i : i+1]))
		b.ledger.ping()
		b.ledger.pong()
		if left := b.ledger.open(b.out.count()); left != 8-resolved {
			t.Errorf("%d messages are open after message %d", left, kept[i])
		}
	}
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
	if got, want := l.trouble, (trouble{messages: 2, bytes: 30, err: cause}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A Flush that is under way at the time of a loss, or when another one reports it, may
// be of a caller whose message was lost (S28).
func TestALossIsReportedByEachFlushThatIsUnderWay(t *testing.T) {
	for name, happens := range map[string]func(*ledger){
		"loss":   func(l *ledger) { l.discard(1, errors.New("EOF")) },
		"denial": func(l *ledger) { l.refuse("a", errors.New("denied")) },
	} {
		var l ledger
		before, none := l.state()
		happens(&l)
		after, _ := l.state()
		for during, all := range map[string]trouble{"loss": before, "report": after} {
			if err := l.report(after, none, false); err == nil {
				t.Errorf("%s: the first Flush does not report it", name)
			}
			if err := l.report(all, none, false); err == nil {
				t.Errorf("%s: a Flush that was under way at the %s does not report it", name, during)
			}
		}
		if all, reported := l.state(); l.report(all, reported, false) != nil {
			t.Errorf("%s: a later Flush reports it again", name)
		}
	}
}

// A Flush goes on after a loss, which it reports: other messages may have to wait for the
// next connection (S28).
func TestFlushWaitsForTheMessagesBehindALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		done := make(chan error, 1)
		l.done(sequence{count: 1, messages: 1})
		go func() { done <- l.confirmed(t.Context(), 2, func() {}, nil) }()
		synctest.Wait()
		l.cut(errors.New("EOF"), 0)
		l.restart()
		synctest.Wait()
		if len(done) != 0 {
			t.Error("it has ended with the loss of the first message")
		}
		l.done(sequence{count: 1, messages: 1})
		l.ping()
		l.pong()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
