package cluster

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// newOutbox returns a bus with an outbox and no hub, and a line that nobody reads.
func newOutbox(t *testing.T) (*Bus, *protocol.Line) {
	t.Helper()
	conn, far := net.Pipe()
	line := protocol.NewLine(conn)
	b := newBus(&Node{config: Config{Buffer: 8 << 20}})
	t.Cleanup(func() {
		line.Close()
		b.out.close()
		_ = far.Close()
	})
	return b, line
}

// put queues an event, and reports whether it is delivered here.
func put(t *testing.T, o *outbox, m driver.Message) (late bool) {
	t.Helper()
	f := protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &m)
	late, room, err := o.tryPut(t.Context(), &outgoing{frame: f, size: f.Len(), deadline: m.Deadline}, &m)
	if room != nil || err != nil {
		t.Fatalf("it is not taken: %v", err)
	}
	return late
}

// pumpByHand gives the outbox a line, and lets the test take the place of its pump.
func pumpByHand(o *outbox, line *protocol.Line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line, o.pumping = line, true
}

// A hub that is slow for longer than RoomTimeout gets a queued request whose
// time is not over (S12).
func TestAQueuedRequestStaysUntilItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		b.out.resume(line)
		queued := func() (requests int) {
			b.out.mu.Lock()
			defer b.out.mu.Unlock()
			for _, e := range b.out.queue[b.out.head:] {
				if e.bound != nil && e.bound.frame != nil {
					requests++
				}
			}
			return requests
		}
		for range 5 {
			if err := b.Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		m := driver.Message{Kind: driver.Request, Subject: "a", ID: 1, Deadline: time.Now().Add(time.Minute)}
		if err := b.Request(context.Background(), m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Second)
		if n := queued(); n != 1 {
			t.Errorf("%d requests before the deadline", n)
		}
		time.Sleep(2 * time.Second)
		if n := queued(); n != 0 {
			t.Errorf("%d requests after the deadline", n)
		}
	})
}

// While the events that were published without a hub are delivered here, a later one waits
// behind them, although the hub takes frames (S5).
func TestEventWaitsForTheDeliveryOfEarlierOnes(t *testing.T) {
	b, line := newOutbox(t)
	o := &b.out
	m := driver.Message{Kind: driver.Event, Subject: "a"}
	if !put(t, o, m) {
		t.Error("without a hub, an event is delivered here at once")
	}
	pumpByHand(o, line)
	_, late, _, _ := o.next()
	if len(late) != 1 {
		t.Fatalf("%d events to deliver, want 1", len(late))
	}
	o.mu.Lock()
	pumping := o.pumping
	o.mu.Unlock()
	if !pumping {
		t.Error("a second pump would deliver an event before an earlier one")
	}
	if !put(t, o, m) { // the pump has not delivered the first one yet
		t.Error("an event is delivered here before an earlier one")
	}
	o.served(1)
	if _, late, _, _ = o.next(); len(late) != 1 {
		t.Errorf("%d events to deliver after that, want 1", len(late))
	}
	o.served(1)
	if put(t, o, m) {
		t.Error("an event waits although nothing is before it")
	}
}

// An event that expires without a hub leaves nothing behind for which later ones wait (S24).
func TestNoEventWaitsForOneThatHasExpired(t *testing.T) {
	b, line := newOutbox(t)
	o := &b.out
	if !put(t, o, driver.Message{Subject: "a", Deadline: time.Now().Add(-time.Second)}) {
		t.Error("without a hub, an event is delivered here at once")
	}
	pumpByHand(o, line)
	if _, late, expired, more := o.next(); len(late) != 0 || expired != 1 || more {
		t.Errorf("%d events to deliver and %d expired, want 1 expired; more: %v", len(late), expired, more)
	}
	if put(t, o, driver.Message{Subject: "a"}) {
		t.Error("an event waits although nothing is before it")
	}
}

// Events that were handed to a line and not confirmed are lost with it. A Flush that began
// before, or that does not reach the hub, does not end the report of the loss (S28).
func TestLossIsReportedUntilALaterFlushHasReachedTheHub(t *testing.T) {
	b := newBus(&Node{config: Config{Buffer: 8 << 20}})
	defer b.out.close()
	here, there := net.Pipe()
	defer there.Close()
	line, earlier := protocol.NewLine(here), &protocol.Line{}
	defer line.Close()
	l := &b.out.confirmations
	b.out.resume(line)
	b.out.mu.Lock()
	for range 3 {
		l.add(10)
	}
	b.out.mu.Unlock()
	type flush struct{ all, reported int }
	begin := func() (f flush) {
		f.all, f.reported = l.losses()
		return f
	}
	before := begin()
	l.confirm(line, tally{1, 10}, false)
	l.confirm(line, tally{}, false)         // a late answer
	l.confirm(earlier, tally{3, 30}, false) // of another line
	if lost := b.out.cut(); lost != (tally{2, 20}) {
		t.Errorf("lost: %+v, want 2 events of 20 bytes", lost)
	}
	if again := b.out.cut(); again != (tally{}) {
		t.Errorf("lost once more: %+v", again)
	}
	after := begin()
	for _, x := range []struct {
		name     string
		flush    flush
		complete bool
	}{
		{"that began before", before, true}, {"that does not reach the hub", after, false}, {"that reaches it", after, true},
		{"that was under way at the loss", before, true}, {"that was under way at the report", after, true},
	} {
		if err := l.report(x.flush.all, x.flush.reported, x.complete); !errors.Is(err, driver.ErrDisconnected) {
			t.Errorf("a Flush %s: %v", x.name, err)
		}
	}
	if all, reported := l.losses(); l.report(all, reported, true) != nil {
		t.Error("a later Flush reports the loss again")
	}
}

// A Flush without time has nothing to report if the hub has all messages.
func TestFlushOfConfirmedMessagesNeedsNoTime(t *testing.T) {
	n, _ := join(t, newHub(t, HubConfig{}), Config{})
	b := n.Bus()
	if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Flush(ctx); err != nil {
		t.Errorf("got %v", err)
	}
}

// Requests wait behind events for a hub that takes nothing more. The given up ones do not stay
// in the queue for long, and the end of the hub removes the others: both make room (S6, S12).
func TestRequestsThatLeaveTheQueueMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		o := &b.out
		o.resume(line)
		check := func(when string, events, requests, most int) {
			t.Helper()
			synctest.Wait()
			o.mu.Lock()
			defer o.mu.Unlock()
			size, empty := 0, 0
			for _, e := range o.queue[o.head:] {
				switch {
				case e.bound == nil:
					events--
				case e.bound.frame == nil:
					empty++
					continue
				default:
					requests--
				}
				size += e.size
			}
			if events != 0 || requests != 0 || o.waiting() > most {
				t.Errorf("%s: %d events and %d requests fewer than expected, in %d entries, want at most %d", when, events, requests, o.waiting(), most)
			}
			if o.size != size || o.empty != empty {
				t.Errorf("%s: %d bytes and %d empty entries are counted, want %d and %d", when, o.size, o.empty, size, empty)
			}
		}
		const events, requests = 6, 3 * maxBatch
		for range events {
			if err := b.Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		o.mu.Lock()
		waiting := o.waiting() // the line has the others
		o.mu.Unlock()
		cancels := make([]context.CancelFunc, requests)
		for i := range cancels {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cancels[i] = cancel
			m := driver.Message{Kind: driver.Request, Subject: "a", ID: uint64(i), Deadline: time.Now().Add(time.Hour)}
			if err := b.Request(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		check("at first", waiting, requests, waiting+requests)
		kept := waiting + requests
		for i := range requests {
			if i%3 != 0 {
				cancels[i]()
				kept--
			}
		}
		check("given up", waiting, requests/3, 2*kept+maxBatch)
		full := o.limit
		o.mu.Lock()
		o.limit = o.size // nothing more has room
		o.mu.Unlock()
		published := make(chan error, 1)
		go func() { published <- b.Publish(t.Context(), driver.Message{Subject: "a"}) }()
		synctest.Wait()
		o.cut()
		if err := <-published; err != nil {
			t.Errorf("an event that waited for room: %v", err)
		}
		o.limit = full
		check("after the end of the hub", waiting+1, 0, waiting+1)
		for _, cancel := range cancels {
			cancel()
		}
		check("after the end of the callers", waiting+1, 0, waiting+1)
	})
}

// An event that waits for room has it as soon as the caller of a queued request gives up (S6).
func TestAGivenUpRequestMakesRoomForAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		o := &b.out
		o.resume(line)
		for line.Backlog() < window {
			if err := b.Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		if err := b.Request(ctx, driver.Message{Kind: driver.Request, Subject: "a", Deadline: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		o.mu.Lock()
		o.limit = o.size
		o.mu.Unlock()
		published := make(chan error, 1)
		go func() { published <- b.Publish(t.Context(), driver.Message{Subject: "a"}) }()
		synctest.Wait()
		if len(published) > 0 {
			t.Error("the event does not wait for room")
		}
		giveUp()
		synctest.Wait()
		if len(published) == 0 {
			t.Error("the event still waits for room")
		}
		if err := <-published; err != nil {
			t.Error(err)
		}
	})
}

// A hub that shuts down still takes the answers to its requests, behind any number of
// bytes that wait for it (S21).
func TestAnAnswerLeavesWithAHubThatShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		b.out.resume(line)
		for line.Backlog() < window {
			if err := b.Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		b.out.pause()
		before := line.Backlog()
		r := &received{line: line}
		r.left.Store(1)
		if err := b.Answer(t.Context(), driver.Message{Return: r}, driver.Message{Kind: driver.Answer, Subject: "a"}); err != nil {
			t.Fatal(err)
		}
		if line.Backlog() <= before {
			t.Error("the answer is lost")
		}
	})
}

// A Flush that waits while the hub changes goes on with the next one. A Flush that fails does
// not end the report of a loss: the next one that reaches a hub reports it, too (S28).
func TestAFlushGoesOnWithTheNextHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		_, next := newOutbox(t)
		b.node.came = make(chan struct{}) // another hub may come
		publish := func() {
			t.Helper()
			if err := b.Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		flush := func() <-chan error {
			flushed := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			go func() { defer cancel(); flushed <- b.Flush(ctx) }()
			synctest.Wait()
			return flushed
		}
		answer := func() {
			answerLast(b)
			synctest.Wait()
		}
		b.out.resume(line)
		for line.Backlog() < window {
			publish()
		}
		publish() // this one waits for the next hub
		flushed := flush()
		b.disconnected(errors.New("cut"))
		ended, end := context.WithCancel(t.Context())
		end()
		if err := b.Flush(ended); !errors.Is(err, driver.ErrDisconnected) {
			t.Errorf("a Flush without time: got %v", err)
		}
		synctest.Wait()
		if len(flushed) > 0 {
			t.Fatalf("the Flush does not wait for the next hub: %v", <-flushed)
		}
		b.out.resume(next)
		synctest.Wait()
		answer()
		if len(flushed) == 0 {
			t.Error("the next hub has everything, and the Flush still waits")
		}
		if err := <-flushed; !errors.Is(err, driver.ErrDisconnected) {
			t.Errorf("the Flush that was running at the loss: got %v", err)
		}
		for _, loss := range []bool{true, false} {
			flushed := flush()
			answer()
			if err := <-flushed; errors.Is(err, driver.ErrDisconnected) != loss || !loss && err != nil {
				t.Errorf("a Flush after it: got %v", err)
			}
		}
	})
}

// A Flush does not wait for a hub if none comes.
func TestAFlushWithoutAHubThatComesEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newOutbox(t)
		b.node.gone = make(chan struct{})
		if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
			t.Fatal(err)
		}
		close(b.node.gone)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.Flush(ctx); !errors.Is(err, driver.ErrDisconnected) || !strings.Contains(err.Error(), "1 messages were not sent") || ctx.Err() != nil {
			t.Errorf("got %v", err)
		}
	})
}

// answerLast answers the latest question for the hub.
func answerLast(b *Bus) {
	b.syncs.mu.Lock()
	number := b.syncs.last
	b.syncs.mu.Unlock()
	b.syncs.answer(number, nil)
}

// A hub that leaves may still lose what it has not confirmed.
func TestAFlushWaitsForTheConfirmationOfAHubThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		b.out.resume(line)
		if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
			t.Fatal(err)
		}
		b.leaving()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 accepted messages not confirmed") {
			t.Errorf("got %v", err)
		}
		answerLast(b)
		if err := b.Flush(t.Context()); err != nil {
			t.Errorf("after the confirmation: got %v", err)
		}
	})
}

// A Flush that finds the hub leaving, after it has found the line, does not take the
// answer of that hub for the events that wait for the next one.
func TestAFlushByAHubThatLeavesIsNoneOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		b.out.resume(line)
		b.out.pause()
		if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
			t.Fatal(err)
		}
		flushed := make(chan error, 1)
		go func() { flushed <- b.flushBy(t.Context(), line) }()
		synctest.Wait()
		answerLast(b)
		if err := <-flushed; !errors.Is(err, driver.ErrDisconnected) {
			t.Errorf("got %v, and an event waits", err)
		}
	})
}

// A Flush that notices the end of the last hub before the node does reports its loss, too (S28).
func TestAFlushWaitsForTheCountOfTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		front := &fronts{}
		if err := b.Attach(front); err != nil {
			t.Fatal(err)
		}
		b.node.gone = make(chan struct{})
		b.out.resume(line)
		if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
			t.Fatal(err)
		}
		line.Close()
		flushed := make(chan error, 1)
		go func() { flushed <- b.Flush(context.Background()) }()
		synctest.Wait()
		b.disconnected(errors.New("cut"))
		if front.lost != 1 {
			t.Errorf("the front has a report of %d lost messages, want 1", front.lost)
		}
		close(b.node.gone)
		if err := <-flushed; !errors.Is(err, driver.ErrDisconnected) || !strings.Contains(err.Error(), "confirmed 1 messages") {
			t.Errorf("got %v", err)
		}
	})
}

// An answer to a request of a hub that has ended is no error of the responder: the sender
// of the request has its own (S12).
func TestAnAnswerToAHubThatHasEndedIsNoError(t *testing.T) {
	b, line := newOutbox(t)
	line.Close()
	r := &received{line: line}
	r.left.Store(1)
	if err := b.Answer(t.Context(), driver.Message{Return: r}, driver.Message{Kind: driver.Answer, Subject: "a"}); err != nil {
		t.Errorf("got %v", err)
	}
}

// Close sends the events that wait for the line.
func TestCloseSendsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		line, hub := protocol.NewLine(here), protocol.NewLine(there)
		b := newBus(&Node{config: Config{Buffer: 8 << 20}})
		b.rejoin(line)
		b.out.resume(line)
		const n = 12
		for range n {
			if err := b.Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		events := 0
		var reading sync.WaitGroup
		reading.Go(func() {
			_ = hub.Read(func(kind protocol.Type, body []byte) error {
				switch kind {
				case protocol.TypeEvent:
					events++
				case protocol.TypeSync:
					d := protocol.NewDecoder(body)
					b.syncs.answer(d.Uint(), nil)
				}
				return nil
			}, func() {})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
		line.Close()
		hub.Close()
		reading.Wait()
		if events != n {
			t.Errorf("%d of %d events were sent", events, n)
		}
	})
}

// Close ends the calls that wait for a hub that does not come, or does not answer (S22).
func TestCloseEndsTheCallsThatWaitForTheHub(t *testing.T) {
	for name, connected := range map[string]bool{"no hub": false, "a silent hub": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, line := newOutbox(t)
				b.node.came = make(chan struct{}) // another hub may come
				if connected {
					b.rejoin(line)
					b.out.resume(line)
				}
				if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				calls := map[string]func() error{"Flush": func() error { return b.Flush(ctx) }}
				if !connected { // else the line takes it
					b.out.limit = 1
					calls["Publish"] = func() error { return b.Publish(ctx, driver.Message{Subject: "a"}) }
				} else { // else it is refused at once
					calls["Subscribe"] = func() error {
						_, err := b.Subscribe(ctx, driver.Subscription{Pattern: "a", Sink: &sink{}})
						return err
					}
				}
				ended := make(chan struct{}, len(calls))
				for name, call := range calls {
					go func() {
						if err := call(); !errors.Is(err, driver.ErrClosed) {
							t.Errorf("%s: got %v, want ErrClosed", name, err)
						}
						ended <- struct{}{}
					}()
				}
				synctest.Wait()
				closing, stop := context.WithTimeout(ctx, time.Second)
				defer stop()
				_ = b.Close(closing) // its error is about the hub
				synctest.Wait()
				if n := len(calls) - len(ended); n > 0 {
					t.Errorf("%d calls wait after Close", n)
				}
				for range calls {
					<-ended
				}
			})
		})
	}
}

// Close discards the events that wait for the next hub. A Flush under way does not take the
// empty queue for a flushed one (S22).
func TestAFlushOfAClosedQueueIsClosed(t *testing.T) {
	b, _ := newOutbox(t)
	b.node.gone = make(chan struct{})
	if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
		t.Fatal(err)
	}
	_ = b.Close(t.Context())
	if err := b.flush(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("at its begin: got %v, want ErrClosed", err)
	}
	close(b.node.gone)
	if err := b.unsent(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("at the end of the node: got %v, want ErrClosed", err)
	}
}

// The next hub is asked for its confirmation, too, if the last one has not answered.
func TestTheNextHubIsAskedForItsConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		_, next := newOutbox(t)
		publish := func(line *protocol.Line) {
			t.Helper()
			b.out.resume(line)
			if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * markPause)
			synctest.Wait()
		}
		publish(line)
		if lost := b.out.cut(); lost.messages != 1 {
			t.Errorf("the first hub has confirmed it: %+v are lost", lost)
		}
		publish(next)
		answerLast(b)
		if lost := b.out.cut(); lost.messages != 0 {
			t.Errorf("%+v are lost, but the next hub has confirmed them", lost)
		}
	})
}

// Nothing is left running after Close (S22): the hub is not asked for its confirmation of
// the events before it.
func TestAClosedBusAsksForNoConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		b.out.resume(line)
		if err := b.Publish(t.Context(), driver.Message{Subject: "a"}); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		asked := b.syncs.last
		time.Sleep(2 * markPause)
		synctest.Wait()
		if b.syncs.last != asked {
			t.Error("it asks after Close")
		}
	})
}

// fronts counts the calls of a front.
type fronts struct {
	driver.Front
	calls int
	lost  int // messages
}

func (f *fronts) Lost(messages, _ int, _ error) { f.lost += messages }

func (f *fronts) Fail(uint64, error) { f.calls++ }
func (f *fronts) Disconnected(error) { f.calls++ }

// sinks counts the calls of a sink.
type sinks struct {
	driver.Sink
	calls int
}

func (s *sinks) Deliver(driver.Message) bool { s.calls++; return true }
func (s *sinks) Gap(int)                     { s.calls++ }

// After Close the frames and the end of the hub reach nobody.
func TestClosedBusCallsNeitherSinksNorTheFront(t *testing.T) {
	b, line := newOutbox(t)
	b.rejoin(line)
	front, in := &fronts{}, &sinks{}
	if err := b.Attach(front); err != nil {
		t.Fatal(err)
	}
	x, _, err := b.enter(driver.Subscription{Pattern: "a", Group: "g", Sink: in})
	if err != nil {
		t.Fatal(err)
	}
	use := func() {
		t.Helper()
		take := func(kind protocol.Type, f *protocol.Frame) {
			t.Helper()
			defer f.Free()
			d := protocol.NewDecoder(f.Body())
			if err := b.handle(&session{line: line}, kind, &d); err != nil {
				t.Error(err)
			}
		}
		f := protocol.Begin(protocol.TypeDeliver).Bool(false).Uint(1).Uint(x.in.number)
		take(protocol.TypeDeliver, protocol.AddMessage(f, &driver.Message{Subject: "a"}))
		take(protocol.TypeGap, protocol.Begin(protocol.TypeGap).Uint(x.in.number).Uint(1))
		take(protocol.TypeFailed, protocol.Begin(protocol.TypeFailed).Uint(1).Byte(protocol.FailGone))
		b.disconnected(errors.New("cut"))
	}
	use()
	if front.calls != 2 || in.calls != 2 {
		t.Errorf("before Close: %d calls of the front and %d of the sink, want 2 each", front.calls, in.calls)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	use()
	if front.calls != 2 || in.calls != 2 {
		t.Errorf("after Close: %d more calls of the front and %d of the sink", front.calls-2, in.calls-2)
	}
}

// The end of a subscription does not wait for events that a hub which leaves will not
// take: they wait for the next one.
func TestAnEndDoesNotWaitForTheNextHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, line := newOutbox(t)
		b.out.resume(line)
		for b.out.events() == 0 {
			if err := b.Publish(t.Context(), driver.Message{Subject: "a", Data: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		passed := make(chan bool, 1)
		go func() { passed <- b.out.awaitPassed(t.Context()) }()
		synctest.Wait()
		b.out.pause()
		synctest.Wait()
		select {
		case p := <-passed:
			if p {
				t.Error("the event has passed without a hub")
			}
		default:
			t.Error("it waits, and no hub takes the event")
			b.out.resume(line)
			line.Close()
			<-passed
		}
	})
}
