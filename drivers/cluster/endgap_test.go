package cluster

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// gapSink counts the gaps that it gets, and calls meanwhile during each of them.
type gapSink struct {
	sink
	gaps      int
	meanwhile func()
}

func (s *gapSink) Gap(int) { s.gaps++; s.meanwhile() }

// Either the driver or End reports the gap of an outage (S4), also if End is called
// while the driver reports the gap to the subscriptions.
func TestAnOutageIsReportedOnceToASubscriptionThatEnds(t *testing.T) {
	n, h := handServed(t, Config{})
	var subs [2]driver.Registration
	var sinks [2]gapSink
	var ends [2]chan error
	var asked []uint64 // the questions of both Ends to the hub
	for i := range subs {
		ends[i] = make(chan error, 1)
		other := 1 - i
		sinks[i].meanwhile = func() {
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				ends[other] <- subs[other].End(t.Context())
			}()
			select {
			case <-returned:
			case number := <-h.syncs:
				asked = append(asked, number)
			}
		}
		subscribed := make(chan error, 1)
		go func() {
			var err error
			subs[i], err = n.Bus().Subscribe(t.Context(), driver.Subscription{Kind: driver.Event, Pattern: "x", Sink: &sinks[i]})
			subscribed <- err
		}()
		h.synced(t, <-h.syncs)
		if err := <-subscribed; err != nil {
			t.Fatal(err)
		}
	}
	s, err := n.session()
	if err != nil {
		t.Fatal(err)
	}
	n.Bus().disconnected(errors.New("connection reset by the test"))
	n.Bus().connected(s)
	for _, number := range asked { // the reader handles these answers after it has reported the gaps
		h.synced(t, number)
	}
	for i := range subs {
		err := <-ends[i]
		if reported := errors.Is(err, driver.ErrDisconnected); (sinks[i].gaps == 1) == reported {
			t.Errorf("subscription %d: %d gaps from the driver, and End returned %v", i, sinks[i].gaps, err)
		}
	}
}

// lossSink adds up the losses that it gets.
type lossSink struct {
	sink
	lost atomic.Int64
}

func (s *lossSink) Gap(n int) { s.lost.Add(int64(n)) }

// A subscription that ends gets the gap on its way to it, whether or not another one
// shares its pattern (S4).
func TestAGapOnItsWayReachesASubscriptionThatEnds(t *testing.T) {
	n, h := handServed(t, Config{})
	var sinks [2]lossSink
	var subs [2]driver.Registration
	done := make(chan error, 1)
	for i := range subs {
		go func() {
			var err error
			subs[i], err = n.Bus().Subscribe(t.Context(), driver.Subscription{Kind: driver.Event, Pattern: "x", Sink: &sinks[i]})
			done <- err
		}()
		h.synced(t, <-h.syncs)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	number := <-h.joins
	for _, s := range subs {
		go func() { done <- s.End(t.Context()) }()
		end := <-h.syncs
		h.say(t, protocol.Begin(protocol.TypeGap).Uint(number).Uint(5))
		h.synced(t, end)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if first, second := sinks[0].lost.Load(), sinks[1].lost.Load(); first != 5 || second != 10 {
		t.Errorf("%d and %d messages are told to be lost, want 5 and 10", first, second)
	}
}

// subscribed returns subscriptions of a node whose hub is h, and the number of their
// registration.
func subscribed(t *testing.T, n *Node, h *handHub, group string, sinks ...driver.Sink) (subs []driver.Registration, number uint64) {
	t.Helper()
	for _, s := range sinks {
		done := make(chan error, 1)
		go func() {
			in, err := n.Bus().Subscribe(t.Context(), driver.Subscription{Kind: driver.Event, Pattern: "x", Group: group, Sink: s})
			subs = append(subs, in)
			done <- err
		}()
		h.synced(t, <-h.syncs)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return subs, <-h.joins
}

var errCut = errors.New("connection reset by the test")

// A subscription has no gap if the next hub follows the one that had sent everything, and
// one gap otherwise: also if that was an earlier one, or if the hub opens without it (S23).
func TestAnOutageIsOneGapUnlessNothingWasMissed(t *testing.T) {
	n, h := handServed(t, Config{})
	in := gapSink{meanwhile: func() {}}
	subscribed(t, n, h, "", &in)
	s, err := n.session()
	if err != nil {
		t.Fatal(err)
	}
	b := n.Bus()
	change := func(to *session) {
		to.line, to.shut = s.line, true
		b.disconnected(errCut)
		b.connected(to)
	}
	want := func(when string, gaps int) {
		t.Helper()
		if in.gaps != gaps {
			t.Errorf("%s: %d gaps, want %d", when, in.gaps, gaps)
		}
	}
	b.whole(&session{self: 1})
	next := &session{self: 2, follows: 1}
	change(next)
	want("at the next hub", 0)
	b.opened(next)
	b.absent()
	want("after it has opened", 0)
	change(&session{self: 3, follows: 1})
	want("at a hub after an earlier one", 1)
	b.absent()
	want("when that one opens without the process", 1)
}

// End reports the gap of an outage that it has seen, and then the driver does not (S4).
func TestASubscriptionThatEndsInAnOutageReportsItsGap(t *testing.T) {
	n, h := handServed(t, Config{})
	var sinks [4]gapSink
	for i := range sinks {
		sinks[i].meanwhile = func() {}
	}
	subs, _ := subscribed(t, n, h, "", &sinks[0], &sinks[1], &sinks[2], &sinks[3])
	s, err := n.session()
	if err != nil {
		t.Fatal(err)
	}
	b := n.Bus()
	before := make(chan error, 1)
	go func() { before <- subs[0].End(t.Context()) }()
	<-h.syncs
	b.disconnected(errCut)
	late := subs[2].(*subscription)
	late.gone = make(chan struct{})
	b.retire(late) // the goroutine of its End stops here until the hub is back
	for i, err := range []error{<-before, subs[1].End(t.Context())} {
		if !errors.Is(err, driver.ErrDisconnected) {
			t.Errorf("End of subscription %d: %v", i, err)
		}
	}
	b.connected(s)
	b.bury(late, driver.ErrDisconnected)
	for i, want := range []int{0, 0, 0, 1} {
		if sinks[i].gaps != want {
			t.Errorf("subscription %d: %d gaps, want %d", i, sinks[i].gaps, want)
		}
	}
}

// The hub counts a loss of a group once, and so does the group (S10).
func TestALossOfAGroupIsReportedToOneMember(t *testing.T) {
	n, h := handServed(t, Config{})
	var sinks [2]lossSink
	_, number := subscribed(t, n, h, "g", &sinks[0], &sinks[1])
	d := protocol.NewDecoder(protocol.Begin(protocol.TypeGap).Uint(number).Uint(5).Body())
	n.Bus().missed(&d)
	if lost := sinks[0].lost.Load() + sinks[1].lost.Load(); lost != 5 {
		t.Errorf("%d messages are told to be lost, want 5", lost)
	}
}

// A member that ends is not chosen while the group has another one (S11), and the other
// one learns of the losses.
func TestAMemberThatEndsIsNotChosen(t *testing.T) {
	n, h := handServed(t, Config{})
	var sinks [2]lossSink
	subs, number := subscribed(t, n, h, "g", &sinks[0], &sinks[1])
	done := make(chan error, 1)
	go func() { done <- subs[0].End(t.Context()) }()
	end := <-h.syncs
	const messages = 100
	for range messages {
		f := protocol.Begin(protocol.TypeDeliver).Bool(false).Uint(1).Uint(number)
		h.say(t, protocol.AddMessage(f, &driver.Message{Subject: "x"}))
	}
	h.say(t, protocol.Begin(protocol.TypeGap).Uint(number).Uint(5))
	h.synced(t, end)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n, lost := sinks[1].got.Load(), sinks[1].lost.Load(); n != messages || lost != 5 {
		t.Errorf("the member that stays has %d of %d messages, and was told of %d losses, want 5", n, messages, lost)
	}
}

// storySink records what it gets, in order.
type storySink struct {
	sink
	story chan string
}

func (s *storySink) Deliver(m driver.Message) bool { s.story <- string(m.Data); return true }
func (s *storySink) Gap(int)                       { s.story <- "gap" }

// The hub may end before it has confirmed a subscription, which has received messages by
// then: the subscription gets the gap, and the messages that waited for the next hub (S10).
func TestASubscriptionThatBeginsInAnOutageGetsItsGap(t *testing.T) {
	n, h := handServed(t, Config{})
	b := n.Bus()
	got := &storySink{story: make(chan string, 10)}
	publish := func(data string) {
		t.Helper()
		if err := b.Publish(t.Context(), driver.Message{Kind: driver.Event, Subject: "x", Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	subscribed := make(chan error, 1)
	go func() {
		_, err := b.Subscribe(t.Context(), driver.Subscription{Kind: driver.Event, Pattern: "x", Sink: got})
		subscribed <- err
	}()
	<-h.syncs // of the subscription
	publish("before")
	s, err := n.session()
	if err != nil {
		t.Fatal(err)
	}
	b.disconnected(errors.New("connection reset by the test"))
	publish("meanwhile")
	soon(t, "Subscribe waits for the next hub", func() bool {
		b.out.mu.Lock()
		defer b.out.mu.Unlock()
		return b.out.back != nil
	})
	b.connected(s)
	b.opened(s)
	for over := false; !over; {
		select {
		case number := <-h.syncs:
			h.synced(t, number)
		case err := <-subscribed:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		}
	}
	publish("after")
	for _, want := range []string{"before", "gap", "meanwhile", "after"} {
		if what := <-got.story; what != want {
			t.Errorf("the subscription got %q, want %q", what, want)
			break
		}
	}
}

// A subscription that ends while events of its own process wait for the next hub does not
// get them, and End reports that (S4).
func TestEventsThatWaitForTheNextHubAreLostToASubscriptionThatEnds(t *testing.T) {
	n, h := handServed(t, Config{})
	var s lossSink
	subs, _ := subscribed(t, n, h, "", &s)
	n.Bus().out.pause() // as for a hub that leaves
	if err := n.Bus().Publish(t.Context(), driver.Message{Subject: "x"}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- subs[0].End(t.Context()) }()
	h.synced(t, <-h.syncs)
	if err := <-done; !errors.Is(err, driver.ErrDisconnected) {
		t.Errorf("End returns %v", err)
	}
}
