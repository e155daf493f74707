//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/limit/limittest"
	"github.com/megaframework/mega/lock"
)

// limitsOf is the limits of a node that is closed with them.
type limitsOf struct {
	driver.Driver
	node *Node
}

func (l limitsOf) Close(ctx context.Context) error {
	return errors.Join(l.Driver.Close(ctx), l.node.Close(ctx))
}

func slotsOf(n *Node, err error) (*lock.Locker, error) {
	if err != nil {
		return nil, err
	}
	return lock.New(locksOf{n.Lock(), n}, lock.Config{})
}

func TestLimitsOfInheritedConnectionsKeepTheContract(t *testing.T) {
	limittest.RunParallel(t, func(t *testing.T) limittest.Harness {
		t.Helper()
		connect := joining(newHub(t, HubConfig{}))
		dial := func() (*Node, error) {
			conn, err := connect()
			if err != nil {
				return nil, err
			}
			return Dial(context.Background(), Config{Conn: conn})
		}
		return limittest.Harness{
			Unit: time.Second, // the margins of the cases are parts of it
			Open: func() (driver.Driver, error) {
				n, err := dial()
				if err != nil {
					return nil, err
				}
				return limitsOf{n.Limits(""), n}, nil
			},
			Locker: func() (*lock.Locker, error) { return slotsOf(dial()) },
			Faults: limittest.Faults{Crash: func(d driver.Driver) error {
				s, err := d.(limitsOf).node.session()
				if err == nil {
					s.line.Close()
				}
				return err
			}},
		}
	})
}

func TestLimitsOfSocketsKeepTheContract(t *testing.T) {
	limittest.RunParallel(t, func(t *testing.T) limittest.Harness {
		t.Helper()
		p := openPost(t)
		dial := func() (*Node, error) { return Dial(context.Background(), Config{Socket: p.socket}) }
		accept := "github.com/megaframework/mega/drivers/cluster.(*post).accept"
		return limittest.Harness{
			Unit: time.Second, // the margins of the cases are parts of it
			Open: func() (driver.Driver, error) {
				n, err := dial()
				if err != nil {
					return nil, err
				}
				return limitsOf{n.Limits("shop"), n}, nil
			},
			Locker: func() (*lock.Locker, error) { return slotsOf(dial()) }, Background: []string{accept},
			Faults: limittest.Faults{
				Restart: func() error { return errors.Join(p.kill(), p.restart()) },
				Crash:   func(d driver.Driver) error { return p.crash(locksOf{node: d.(limitsOf).node}) },
			},
		}
	})
}

// What one process was granted counts at the next hub, also after the process
// and the hub have ended: every other process has a copy.
func TestGrantsOfTheDeadCountAtTheNextHub(t *testing.T) {
	p := openPost(t)
	open := func(namespace string) limitsOf {
		n, err := Dial(t.Context(), Config{Socket: p.socket})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close(context.Background()) })
		return limitsOf{n.Limits(namespace), n}
	}
	a, b := open(""), open("")
	r := driver.Request{Key: "partner", Rates: []driver.Rate{{N: 3, Per: time.Hour}}, Cost: 2}
	got, err := a.Take(t.Context(), r)
	if err != nil || !got.Granted {
		t.Fatalf("the first: %+v, %v", got, err)
	}
	if age := time.Since(got.At); age < -time.Second || age > time.Minute {
		t.Errorf("it was granted at %v, %v ago", got.At, age)
	}
	if got, err := b.Take(t.Context(), r); err != nil || got.Granted { // W3: at the next hub, too
		t.Fatalf("two more units: %+v, %v", got, err)
	}
	if err := b.Pause(t.Context(), "slow", driver.Pause{Left: time.Hour, Reason: "they asked for it"}); err != nil {
		t.Fatal(err)
	}
	if err := p.crash(locksOf{node: a.node}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.kill(), p.restart()); err != nil {
		t.Fatal(err)
	}
	// At the next hub: a request that may have been sent to the killed one is unknown
	// if it is refused (W9).
	if s, err := b.Inspect(t.Context(), "slow", nil); err != nil || s.Paused == nil || s.Paused.Reason != "they asked for it" {
		t.Errorf("the pause at the next hub: %+v, %v", s, err)
	}
	if got, err = b.Take(t.Context(), r); err != nil || got.Granted || got.Remaining != 1 {
		t.Errorf("two more units at the next hub: %+v, %v", got, err)
	}
	r.Cost = 1
	if got, err = b.Take(t.Context(), r); err != nil || !got.Granted {
		t.Errorf("one more unit at the next hub: %+v, %v", got, err)
	}
	if got, err = open("other").Take(t.Context(), driver.Request{Key: "partner", Rates: r.Rates, Cost: 3}); err != nil || !got.Granted {
		t.Errorf("in another namespace: %+v, %v", got, err)
	}
	if all, err := b.List(t.Context(), "p"); err != nil || len(all) != 1 {
		t.Errorf("the list of the namespace: %+v, %v", all, err)
	}
}

// Somebody removes all files of a socket, and the next process is a hub beside the one of
// the others: it grants no unit before it knows what they were granted (W1), and a call that
// it has refused meanwhile counts for nobody.
func TestRemovedFilesKeepTheRates(t *testing.T) {
	socket := socketPath(t)
	meetAt(t, socket) // the hub
	r := driver.Request{Key: "partner", Rates: []driver.Rate{{N: 3, Per: time.Hour}}, Cost: 3}
	got, err := meetAt(t, socket).Limits("").Take(t.Context(), r)
	if err != nil || !got.Granted {
		t.Fatalf("the first: %+v, %v", got, err)
	}
	must(t, errors.Join(os.RemoveAll(socket+".clients"), os.Remove(socket), os.Remove(socket+".lock")))
	x := meetAt(t, socket).Limits("")
	other := r
	other.Key = "other"
	ctx, cancel := context.WithTimeout(t.Context(), driver.CallTimeout)
	defer cancel()
	early, _ := x.Take(ctx, other) // without an answer in time, unless this machine is slow
	for got, err = x.Take(t.Context(), r); errors.Is(err, driver.ErrUnavailable); {
		got, err = x.Take(t.Context(), r)
	}
	if err != nil || got.Granted {
		t.Errorf("three units more: %+v, %v", got, err)
	}
	if got, err = x.Take(t.Context(), other); err != nil || got.Granted == early.Granted {
		t.Errorf("after %+v: %+v, %v", early, got, err)
	}
}

// The processes of a node, and those at the hub that follows, say the same time
// for the same grant, whatever the time of day was when they started.
func TestProcessesDateGrantsAlike(t *testing.T) {
	socket := socketPath(t)
	a, b := meetAt(t, socket), meetAt(t, socket)
	s := b.served(t, nil)
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.served(t, s)
	c := meetAt(t, socket)
	if a.limits.epoch != b.limits.epoch || b.limits.epoch != c.limits.epoch {
		t.Errorf("the epochs are %d, %d and %d", a.limits.epoch, b.limits.epoch, c.limits.epoch)
	}
}

// A hub that asks for a key before the end of the report has the records of the key before
// the answer, once, and none after the report (W1).
func TestAHubThatWantsAKeyHasItsRecordsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		line, hub := protocol.NewLine(here), protocol.NewLine(there)
		got := make(chan string, 10)
		var reading sync.WaitGroup
		reading.Go(func() {
			_ = hub.Read(func(kind protocol.Type, body []byte) error {
				d := protocol.NewDecoder(body)
				if kind == protocol.LimitGiven {
					got <- "given " + d.String()
					return d.Err()
				}
				var r windows.Record
				err := protocol.ReadJSON(&d, &r)
				got <- "record of " + r.Key
				return err
			}, func() {})
		})
		defer reading.Wait()
		defer hub.Close()
		defer line.Close()
		x, s := newLimits(&Node{}), &session{line: line, reported: make(chan struct{})}
		defer x.copied.Close()
		for _, key := range []string{"a", "b"} {
			r := driver.Request{Key: key, Rates: []driver.Rate{{N: 3, Per: time.Hour}}, Cost: 2}
			if err := x.copied.Learn(&r, time.UnixMicro(protocol.NodeMicros())); err != nil {
				t.Fatal(err)
			}
		}
		ask := func(key string, want ...string) {
			t.Helper()
			f := protocol.Begin(protocol.LimitWanted).String(key)
			defer f.Free()
			d := protocol.NewDecoder(f.Body())
			if err := x.handle(s, protocol.LimitWanted, &d); err != nil {
				t.Fatal(err)
			}
			for _, want := range want {
				select {
				case got := <-got:
					if got != want {
						t.Errorf("asked for %s: got %q, want %q", key, got, want)
					}
				case <-time.After(time.Minute):
					t.Errorf("asked for %s: no %q", key, want)
				}
			}
		}
		ask("a", "record of a", "given a")
		ask("a", "given a")
		close(s.reported)
		ask("b", "given b")
	})
}

// askingHub returns a node whose calls of limits go to a hub that is only a line, and a function
// that replaces it by another one.
func askingHub(t *testing.T) (n *Node, next func() *session) {
	t.Helper()
	n = &Node{}
	n.limits = newLimits(n)
	t.Cleanup(n.limits.copied.Close)
	next = func() *session {
		t.Helper()
		_, line := newOutbox(t)
		known := make(chan struct{})
		close(known)
		s := &session{hub: "the hub", line: line, opened: known, reported: known}
		s.calls.Open(line, nil, slog.New(slog.DiscardHandler))
		n.mu.Lock()
		before := n.hub
		n.hub = s
		n.mu.Unlock()
		if before != nil {
			before.calls.Fail(errors.New("the hub is gone"))
		}
		return s
	}
	next()
	return n, next
}

// A hub that ends before its answer may have settled: once more would be twice (W7).
func TestSettleIsNotRepeatedAtTheNextHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, next := askingHub(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		settled, paused := make(chan error, 1), make(chan error, 1)
		go func() { settled <- n.Limits("").Settle(ctx, driver.Settlement{Key: "k"}) }()
		synctest.Wait()
		s := next()
		if err := <-settled; !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil || s.line.Backlog() > 0 {
			t.Errorf("Settle: %v, %d bytes for the next hub", err, s.line.Backlog())
		}
		go func() { paused <- n.Limits("").Pause(ctx, "k", driver.Pause{Left: time.Hour}) }()
		synctest.Wait()
		s = next()
		if err := <-paused; !errors.Is(err, context.DeadlineExceeded) || s.line.Backlog() == 0 {
			t.Errorf("Pause: %v, %d bytes for the next hub", err, s.line.Backlog())
		}
	})
}

// A call is sent when the hub knows all processes, and what this process knows of its key precedes
// it (W1).
func TestACallOfALimitWaitsUntilTheHubIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, next := askingHub(t)
		s := next()
		s.opened, s.reported = make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		taken := make(chan error, 1)
		go func() {
			_, err := n.Limits("").Take(ctx, driver.Request{Key: "k", Cost: 1})
			taken <- err
		}()
		synctest.Wait()
		if s.line.Backlog() > 0 {
			t.Error("the call is sent to a hub that is not open")
		}
		close(s.opened)
		synctest.Wait()
		s.ahead.Lock()
		_, done := s.ahead.keys["k"]
		s.ahead.Unlock()
		if !done || s.line.Backlog() == 0 {
			t.Errorf("the key was reported: %v; %d bytes are sent", done, s.line.Backlog())
		}
		cancel()
		if err := <-taken; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// The list of a namespace has its own keys only, as the program knows them.
func TestListsOfNamespacesAreApart(t *testing.T) {
	n := meetAt(t, socketPath(t))
	namespaces := []string{"", "shop", "shop2"}
	for _, namespace := range namespaces {
		r := driver.Request{Key: "of " + namespace, Rates: []driver.Rate{{N: 1, Per: time.Hour}}, Cost: 1}
		if a, err := n.Limits(namespace).Take(t.Context(), r); err != nil || !a.Granted {
			t.Fatalf("got %+v, %v", a, err)
		}
	}
	for _, namespace := range namespaces {
		all, err := n.Limits(namespace).List(t.Context(), "")
		if err != nil || len(all) != 1 || all[0].Key != "of "+namespace {
			t.Errorf("the namespace %q: %+v, %v", namespace, all, err)
		}
	}
}

// A hub that ends before its answer may have granted: the refusal of the next hub is then of no
// use, except for a ticket, which is the same request, and for a look (W9).
func TestARefusalByTheNextHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, next := askingHub(t)
		for name, c := range map[string]struct {
			request driver.Request
			unknown bool
		}{
			"without a ticket": {driver.Request{Key: "k", Cost: 1}, true},
			"with a ticket":    {driver.Request{Key: "k", Cost: 1, Ticket: "t"}, false},
			"a look":           {driver.Request{Key: "k"}, false},
		} {
			taken := make(chan error, 1)
			go func() {
				_, err := n.Limits("").Take(t.Context(), c.request)
				taken <- err
			}()
			synctest.Wait()
			s := next()
			time.Sleep(time.Second) // it asks the next hub
			f := protocol.Begin(protocol.TypeResult).Uint(1).Bool(false).Rest([]byte("{}"))
			d := protocol.NewDecoder(f.Body())
			s.calls.Result(&d)
			if err := <-taken; errors.Is(err, driver.ErrUnavailable) != c.unknown || !c.unknown && err != nil {
				t.Errorf("%s: got %v", name, err)
			}
			f.Free()
			next()
		}
	})
}

// Settle takes the time of a grant back by the epoch that Take has added: the epoch stays,
// whatever a later hub says.
func TestTheEpochOfANodeStays(t *testing.T) {
	x := newLimits(&Node{})
	for _, epoch := range []int64{5, 7, 0} {
		if x.date(epoch); x.epoch != 5 {
			t.Errorf("after a hub with the epoch %d it is %d", epoch, x.epoch)
		}
	}
	x = newLimits(&Node{})
	if x.date(0); x.epoch == 0 {
		t.Error("there is no epoch at a hub of an earlier build")
	}
}

// A node has limits in use as soon as one grant counts at the socket.
func TestOneGrantIsALimitInUse(t *testing.T) {
	n := meetAt(t, socketPath(t))
	if n.LimitsInUse() {
		t.Error("limits are in use before the first grant")
	}
	a, err := n.Limits("").Take(t.Context(), driver.Request{Key: "k", Rates: []driver.Rate{{N: 1, Per: time.Hour}}, Cost: 1})
	if err != nil || !a.Granted {
		t.Fatalf("got %+v, %v", a, err)
	}
	if !n.LimitsInUse() {
		t.Error("the grant is no limit in use")
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Limits("").Take(t.Context(), driver.Request{Key: "k"}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after the end of the node: got %v, want ErrClosed", err)
	}
}

// An answer that was lost is asked for again at the next hub, which knows what
// the ticket was granted.
func TestTicketThatWasGrantedIsKnownToTheNextHub(t *testing.T) {
	p := openPost(t)
	n, err := Dial(t.Context(), Config{Socket: p.socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close(context.Background()) }()
	d := n.Limits("")
	r := driver.Request{Key: "partner", Rates: []driver.Rate{{N: 1, Per: time.Hour}}, Cost: 1, Ticket: "0123456789012345678901", Seq: 1, MaxWait: -1}
	first, err := d.Take(t.Context(), r)
	if err != nil || !first.Granted {
		t.Fatalf("%+v, %v", first, err)
	}
	if err := errors.Join(p.kill(), p.restart()); err != nil {
		t.Fatal(err)
	}
	if again, err := d.Take(t.Context(), r); err != nil || !again.Granted || !again.At.Equal(first.At) {
		t.Errorf("asked again: %+v, %v, want the grant of %v", again, err, first.At)
	}
	if err := d.Withdraw(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if s, err := d.Inspect(t.Context(), "partner", nil); err != nil || len(s.Rates) > 0 && s.Rates[0].Used != 0 {
		t.Errorf("after it was withdrawn: %+v, %v", s, err)
	}
}

// The units of a grant whose answer was lost may be those that refuse the repeated
// request: its outcome is not known, and it is no refusal, which consumes nothing
// (W3, W9).
func TestAGrantWhoseAnswerIsLostIsNoRefusal(t *testing.T) {
	p := openPost(t)
	p.addLinks()
	open := func() limitsOf {
		n, err := Dial(t.Context(), Config{Socket: p.socket})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close(context.Background()) })
		return limitsOf{n.Limits(""), n}
	}
	a, b := open(), open()
	client, _, err := p.client(locksOf{node: a.node})
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	cut := p.links[client]
	p.mu.Unlock()
	_ = cut.hold(down)
	r := driver.Request{Key: "partner", Rates: []driver.Rate{{N: 1, Per: time.Hour}}, Cost: 1}
	type taken struct {
		driver.Answer
		err error
	}
	done := make(chan taken, 1)
	go func() {
		got, err := a.Take(t.Context(), r)
		done <- taken{got, err}
	}()
	eventually(t, "the grant at the hub", func() bool {
		s, err := b.Inspect(t.Context(), r.Key, r.Rates)
		return err == nil && s.Rates[0].Used == 1
	})
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	cut.close()
	if err := p.restart(); err != nil {
		t.Fatal(err)
	}
	if got := <-done; !errors.Is(got.err, driver.ErrUnavailable) {
		t.Errorf("asked again: %+v, want ErrUnavailable", got)
	}
	if got, err := b.Take(t.Context(), r); err != nil || got.Granted {
		t.Errorf("another process: %+v, %v, want a refusal", got, err)
	}
}

// A hub whose copy of a limit cannot be counted with is left.
func TestACopyOutOfBoundsEndsTheConnection(t *testing.T) {
	x := newLimits(&Node{})
	defer x.copied.Close()
	f, err := protocol.AddJSON(protocol.Begin(protocol.LimitRecord), windows.Record{Key: "k", Logs: []windows.LogRecord{{N: 1}}})
	must(t, err)
	d := protocol.NewDecoder(f.Body())
	if err := x.handle(nil, protocol.LimitRecord, &d); err == nil {
		t.Error("a limit per nothing is accepted")
	}
}

// A copy of the limits must not have anything that the next hub refuses.
func TestNextHubAcceptsEveryCopy(t *testing.T) {
	p := openPost(t)
	n, err := Dial(t.Context(), Config{Socket: p.socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close(context.Background()) }()
	d := n.Limits("")
	take := func(cost int, per time.Duration) driver.Answer {
		t.Helper()
		a, err := d.Take(t.Context(), driver.Request{Key: "partner", Rates: []driver.Rate{{N: 4, Per: per}}, Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	take(0, time.Hour)
	for i := range 50 {
		take(1, time.Hour+time.Duration(i)*time.Second)
	}
	all := take(3, time.Hour)
	if err := d.Settle(t.Context(), driver.Settlement{Key: "partner", Rates: []driver.Rate{{N: 4, Per: time.Hour}}, At: all.At, Cost: 3}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.kill(), p.restart()); err != nil {
		t.Fatal(err)
	}
	if a := take(0, time.Hour); a.Remaining != 3 {
		t.Errorf("the next hub has %+v, want 3 units left", a)
	}
}

// A client that breaks a bound gets an error, and the others go on.
func TestACallOutOfBoundsDoesNotStopTheLimits(t *testing.T) {
	n := meetAt(t, socketPath(t))
	d := n.Limits("")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	rates := []driver.Rate{{N: 3, Per: time.Hour}, {N: 5, Per: 2 * time.Hour}}
	for _, r := range []driver.Request{
		{Key: "k", Rates: rates, Cost: -5},
		{Key: "k", Rates: rates, Cost: math.MinInt64, Ticket: "0123456789012345678901", Seq: 1},
		{Key: "k", Rates: rates, Cost: driver.MaxN + 1},
		{Key: "k", Rates: []driver.Rate{{N: driver.MaxN + 1, Per: time.Hour}}, Cost: 1},
		{Key: "k", Rates: []driver.Rate{{N: 1, Per: math.MaxInt64}}, Cost: 1},
	} {
		if a, err := d.Take(ctx, r); err == nil || ctx.Err() != nil {
			t.Errorf("%d of %v: %+v, %v", r.Cost, r.Rates, a, err)
		}
	}
	if err := d.Settle(ctx, driver.Settlement{Key: "k", Rates: rates, At: time.Now(), Cost: 1, Actual: -1}); err == nil || ctx.Err() != nil {
		t.Errorf("an actual cost of -1: %v", err)
	}
	if a, err := d.Take(ctx, driver.Request{Key: "k", Rates: rates, Cost: 3}); err != nil || !a.Granted {
		t.Errorf("afterwards: %+v, %v", a, err)
	}
}

// A list is longer than a frame.
func TestALongListOfLimitsArrivesWhole(t *testing.T) {
	n := meetAt(t, socketPath(t))
	d := n.Limits("shop")
	const keys = 4000
	for i := range keys {
		r := driver.Request{Key: fmt.Sprintf("partner:%s:%04d", strings.Repeat("x", 200), i), Rates: []driver.Rate{{N: 3, Per: time.Hour}}, Cost: 1}
		if a, err := d.Take(t.Context(), r); err != nil || !a.Granted {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	all, err := d.List(t.Context(), "partner:")
	if err != nil || len(all) != keys {
		t.Fatalf("%d limits, %v", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b driver.State) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("they are not sorted")
	}
}

// A process with many limits reports them to a new hub for a while. Its calls end with
// their contexts meanwhile.
func TestCallOfALimitEndsWithItsContextDuringTheReport(t *testing.T) {
	n := meetAt(t, socketPath(t))
	s, err := n.session()
	if err != nil {
		t.Fatal(err)
	}
	reported := make(chan struct{})
	s.reported = reported // no other goroutine uses it here
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- n.Limits("").Reset(ctx, "k") // it needs the whole report
	}()
	select {
	case err = <-ended:
	case <-time.After(bound):
		t.Error("the call goes on")
		close(reported)
		err = <-ended
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the call ends with %v", err)
	}
}

// A new hub decides about a key while the processes still report many others. Its
// decision knows what any process has of the key (W1).
func TestAHubDecidesAboutAKeyWithTheGrantsOfAllDuringALongReport(t *testing.T) {
	const keys = 10_000
	socket := socketPath(t)
	host, a, b := meetAt(t, socket), meetAt(t, socket), meetAt(t, socket)
	rates := []driver.Rate{{N: 3, Per: time.Hour}}
	now := time.UnixMicro(protocol.NodeMicros())
	learn := func(n *Node, key string) {
		t.Helper()
		if err := n.limits.copied.Learn(&driver.Request{Key: key, Rates: rates, Cost: 2}, now); err != nil {
			t.Fatal(err)
		}
	}
	for i := range keys {
		for _, n := range []*Node{a, b} {
			learn(n, fmt.Sprintf("partner:%05d", i))
		}
	}
	for i := range 50 { // of these one process knows nothing
		learn(a, fmt.Sprintf("a:%d", i))
		learn(b, fmt.Sprintf("b:%d", i))
	}
	if err := host.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{a, b} { // a Take whose answer the old hub did not send would be unknown
		if _, err := n.Limits("").Inspect(t.Context(), "other", rates); err != nil {
			t.Fatal(err)
		}
	}
	var asking sync.WaitGroup // at once: a few calls take as long as the report
	for i := range 50 {
		for _, key := range []string{fmt.Sprintf("a:%d", i), fmt.Sprintf("b:%d", i)} {
			for _, n := range []*Node{a, b} {
				asking.Go(func() {
					r := driver.Request{Key: key, Rates: rates, Cost: 2}
					got, err := n.Limits("").Take(t.Context(), r)
					if errors.Is(err, driver.ErrUnavailable) { // the old hub may have had the call (W9)
						got, err = n.Limits("").Take(t.Context(), r)
					}
					if err != nil || got.Granted {
						t.Errorf("two more of three units of %s: %+v, %v", key, got, err)
					}
				})
			}
		}
	}
	asking.Wait()
	got, err := a.Limits("").Take(t.Context(), driver.Request{Key: "partner:00007", Rates: rates, Cost: 1})
	if err != nil || !got.Granted {
		t.Errorf("the last unit: %+v, %v", got, err)
	}
	all, err := b.Limits("").List(t.Context(), "") // waits for the reports
	if err != nil || len(all) != keys+100 {
		t.Errorf("%d limits, %v, want %d", len(all), err, keys+100)
	}
	for _, s := range all {
		want := 2
		if s.Key == "partner:00007" {
			want = 3
		}
		if s.Rates[0].Used != want {
			t.Errorf("%s has %d used units, want %d", s.Key, s.Rates[0].Used, want)
		}
	}
}

// The records of a key precede the first call about it during a report. They are not
// repeated before each other call: renewals of leases would wait behind them.
func TestTheRecordsOfAKeyPrecedeItsFirstCallAlone(t *testing.T) {
	here, there := net.Pipe() // which nobody reads
	s := &session{line: protocol.NewLine(here), reported: make(chan struct{})}
	defer func() { s.line.Close(); _ = there.Close() }()
	x := newLimits(nil)
	defer x.copied.Close()
	for range 100 {
		if _, err := x.copied.Take(&driver.Request{Key: "k", Rates: []driver.Rate{{N: 100, Per: time.Hour}}, Cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	x.reportKey(s, "another key")
	x.reportKey(s, "k")
	size := s.line.Backlog()
	if size == 0 {
		t.Fatal("the first call has no records")
	}
	for range 1000 {
		x.reportKey(s, "k")
	}
	if more := s.line.Backlog() - size; more > 0 {
		t.Errorf("%d bytes of records, after the first %d, wait before the calls", more, size)
	}
}
