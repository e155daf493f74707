package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// The goroutine of a call may reach the table after the end of its client's
// connection: its ticket must not delay the others for its grace (W7).
func TestATicketEndsWithItsClientAlsoDuringACall(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	here, there := net.Pipe()
	defer there.Close()
	c := newClient(h, here, "client")
	defer c.line.Close()
	r := driver.Request{Key: "k", Rates: []driver.Rate{{N: 1, Per: time.Minute}}, Cost: 1, MaxWait: -1}
	if a, err := h.limits.take(c, &r); err != nil || !a.Granted {
		t.Fatalf("the first unit: %+v, %v", a, err)
	}
	r.Ticket, r.Seq = "early", 1
	if a, err := h.limits.take(c, &r); err != nil || a.Again == 0 {
		t.Fatalf("no place in the queue: %+v, %v", a, err)
	}
	h.limits.leave(c)
	r.Ticket, r.Seq = "late", 1
	_, _ = h.limits.take(c, &r)
	s, err := h.limits.table.Inspect("k", r.Rates)
	if err != nil || len(s.Waiters) != 0 {
		t.Errorf("%d tickets wait after the end of their client, %v", len(s.Waiters), err)
	}
}

// A client that ends takes its tickets out of the queues, and is not sent decisions any
// more (W7).
func TestTicketsAndCopyEndWithTheConnection(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	h.limits.copied = true
	hand := joinHand(t, h, true, func(*handClient, protocol.Type, []byte) {})
	c := h.list()[0]
	r := driver.Request{Key: "k", Rates: []driver.Rate{{N: 1, Per: time.Minute}}, Cost: 1, MaxWait: -1}
	if a, err := h.limits.take(c, &r); err != nil || !a.Granted {
		t.Fatalf("the first unit: %+v, %v", a, err)
	}
	r.Ticket, r.Seq = "ticket", 1
	if a, err := h.limits.take(c, &r); err != nil || a.Again == 0 {
		t.Fatalf("no place in the queue: %+v, %v", a, err)
	}
	hand.line.Close()
	<-c.Done()
	s, err := h.limits.table.Inspect("k", r.Rates)
	if err != nil || len(s.Waiters) != 0 || len(h.limits.copies) != 0 {
		t.Errorf("after its end, %d tickets wait and %d copies are kept, %v", len(s.Waiters), len(h.limits.copies), err)
	}
}

// limitHub returns a hub at a socket with clients, whose connections nobody reads.
func limitHub(t *testing.T, clients int) (*Hub, []*Client) {
	t.Helper()
	h := New(Config{})
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	h.limits.copied, h.shut = true, true
	var all []*Client
	for range clients {
		here, there := net.Pipe()
		c := newClient(h, here, "client")
		t.Cleanup(func() { c.line.Close(); _ = there.Close(); c.copying.Wait() })
		all = append(all, c)
	}
	return h, all
}

// record returns the text of a record with grants of one unit.
func record(t *testing.T, key string, at ...int64) []byte {
	t.Helper()
	l := windows.LogRecord{Per: driver.MaxPer.Microseconds(), N: 9, Granted: 1, Gone: at[0] - 1}
	for _, at := range at {
		l.Last, l.Grants = at, append(l.Grants, windows.MarkRecord{At: at, Units: 1})
	}
	text, err := json.Marshal(windows.Record{Key: key, Logs: []windows.LogRecord{l}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func restore(t *testing.T, c *Client, text []byte) {
	t.Helper()
	d := protocol.NewDecoder(text)
	if err := c.hub.limits.restore(c, &d); err != nil {
		t.Fatal(err)
	}
}

// behind returns the number of keys that a client is still to be sent.
func behind(c *Client) int {
	c.hub.limits.mu.Lock()
	defer c.hub.limits.mu.Unlock()
	return len(c.hub.limits.copies[c].behind)
}

// The answers to a process that joins do not wait behind more than a part of the
// grants.
func TestAProcessJoinsBesideManyGrants(t *testing.T) {
	h, clients := limitHub(t, 1)
	const keys = 4000
	for i := range keys {
		r := driver.Request{Key: fmt.Sprintf("%0512d", i), Rates: []driver.Rate{{N: 1, Per: time.Hour}}, Cost: 1}
		if a, err := h.limits.table.Take(&r); err != nil || !a.Granted {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	h.limits.introduce(clients[0])
	if n := behind(clients[0]); n != keys {
		t.Errorf("the client lacks %d keys before its report, want %d", n, keys)
	}
	h.limits.leasesReported(clients[0])
	for clients[0].line.Backlog() < recordsPart {
		runtime.Gosched()
	}
	before := runtime.NumGoroutine()
	for range 100 {
		h.limits.leasesReported(clients[0])
	}
	if n := runtime.NumGoroutine() - before; n > 50 {
		t.Errorf("%d goroutines more send the grants", n)
	}
	if n, left := clients[0].line.Backlog(), behind(clients[0]); n > 2*recordsPart || left >= keys {
		t.Errorf("%d bytes wait, want about %d, and %d keys are left of %d", n, recordsPart, left, keys)
	}
}

// A client that sends nothing has the grants of the others all the same, with their
// times: it may be the next hub. It is also asked for what it knows.
func TestGrantsReachAClientThatIsIdle(t *testing.T) {
	h, clients := limitHub(t, 1)
	other := clients[0]
	here, there := net.Pipe()
	idle := newClient(h, here, "idle")
	defer func() { idle.line.Close(); _ = there.Close(); idle.copying.Wait() }()
	_ = there.SetReadDeadline(time.Now().Add(10 * time.Second))
	sent := func(want ...string) {
		t.Helper()
		text := make([]byte, 1<<10)
		n, err := there.Read(text)
		for _, part := range want {
			if err != nil || !strings.Contains(string(text[:n]), part) {
				t.Fatalf("the client was sent %q, %v, want %q", text[:n], err, part)
			}
		}
	}
	h.limits.introduce(other)
	h.limits.introduce(idle)
	h.limits.begin(idle)
	asked := make(chan error, 1)
	go func() { asked <- h.limits.reports(t.Context(), protocol.LimitTake, []byte(`{"key":"wanted"}`)) }()
	sent("wanted")
	h.limits.reported(idle)
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"first", "second"} {
		restore(t, other, record(t, key, protocol.NodeMicros()))
		sent(key)
	}
	rates := []driver.Rate{{N: 1, Per: time.Hour}}
	a, err := h.limits.take(other, &driver.Request{Key: "third", Rates: rates, Cost: 1})
	if err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	sent("third", `"at":"`)
	if err := h.limits.change(&protocol.News{Settle: &driver.Settlement{Key: "fourth", Rates: rates, At: a.At, Cost: 1, Actual: 2}}); err != nil {
		t.Fatal(err)
	}
	sent("fourth", `"at":"`) // a debt with two times would count twice
}

// Each client is sent what the other one had more, and nothing that it has reported.
func TestClientsAreSentOnlyWhatTheyLack(t *testing.T) {
	h, clients := limitHub(t, 3)
	a, b, c := clients[0], clients[1], clients[2]
	now := protocol.NodeMicros()
	for _, c := range clients {
		h.limits.introduce(c)
		h.limits.begin(c)
		restore(t, c, record(t, "same", now-9))
	}
	restore(t, a, record(t, "a has more", now-9, now-5))
	restore(t, b, record(t, "a has more", now-9))
	restore(t, a, record(t, "b has more", now-9))
	restore(t, b, record(t, "b has more", now-9, now-5))
	restore(t, c, record(t, "a has more", now-9, now-5))
	for range 2 {
		restore(t, c, record(t, "b has more", now-9)) // as a, when the table has more
	}
	if x, y, z := behind(a), behind(b), behind(c); x != 1 || y != 1 || z != 1 {
		t.Errorf("the clients lack %d, %d and %d keys, want 1 each", x, y, z)
	}
	restore(t, b, record(t, "a has more", now-9, now-5)) // as a client that heard of it meanwhile
	if n := behind(b); n != 0 {
		t.Errorf("the client lacks %d keys that it has", n)
	}
	h.limits.reported(a)
	for behind(a) > 0 {
		runtime.Gosched()
	}
	if a.line.Backlog() == 0 || b.line.Backlog() != 0 {
		t.Errorf("%d and %d bytes wait for the clients, want only what the first lacks", a.line.Backlog(), b.line.Backlog())
	}
	h.limits.reported(b)
	h.limits.reported(c)
	h.open()
	h.limits.introduce(a)
	h.limits.begin(a)
	restore(t, a, record(t, "late", now))
	if n := len(h.limits.report.known); n != 0 {
		t.Errorf("%d texts are remembered after the reports", n)
	}
}

// Nobody is granted anything until all have reported, or one of them stops within
// its report (W1).
func TestCallsWaitForTheReportsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, clients := limitHub(t, 2)
		for _, c := range clients {
			h.limits.introduce(c)
			h.limits.begin(c)
			h.limits.begin(c) // a report has one begin
		}
		start := time.Now()
		waited := make(chan time.Duration, 1)
		go func() {
			if err := h.limits.reports(t.Context(), protocol.LimitList, nil); err != nil {
				t.Error(err)
			}
			waited <- time.Since(start)
		}()
		h.limits.reported(clients[0])
		h.limits.leave(clients[0]) // its report counts once
		for range 4 {
			time.Sleep(reportBound / 2)
			restore(t, clients[1], record(t, "k", protocol.NodeMicros()))
		}
		h.limits.leave(clients[1])
		if d := <-waited; d != 2*reportBound {
			t.Errorf("a call waited for %v, want the %v that the report lasted", d, 2*reportBound)
		}
		h.limits.introduce(clients[1])
		h.limits.begin(clients[1])
		start = time.Now()
		if err := h.limits.reports(t.Context(), protocol.LimitList, nil); err != nil || time.Since(start) != reportBound {
			t.Errorf("a stopped client delayed a call by %v, %v, want %v", time.Since(start), err, reportBound)
		}
		h.limits.leave(clients[1])
		h.open()
		h.limits.introduce(clients[1])
		h.limits.begin(clients[1])
		start = time.Now()
		if err := h.limits.reports(t.Context(), protocol.LimitList, nil); err != nil || time.Since(start) != 0 {
			t.Errorf("a client that came back delayed a call by %v, %v", time.Since(start), err)
		}
	})
}

// A call about one key waits until every client has reported this key, and not for
// the other keys (W1).
func TestACallWaitsForItsKeyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, clients := limitHub(t, 3)
		a, b, c := clients[0], clients[1], clients[2]
		for _, c := range clients {
			h.limits.introduce(c)
			h.limits.begin(c)
		}
		body := func(key string) []byte {
			text, err := json.Marshal(driver.Request{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		ended := make(chan error, 1)
		go func() { ended <- h.limits.reports(t.Context(), protocol.LimitTake, body("k")) }()
		waits := func(whom string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("the call does not wait for %s: %v", whom, err)
			default:
			}
		}
		waits("anybody")
		h.limits.given(a, "another key")
		h.limits.given(a, "k")
		h.limits.given(a, "k") // again
		waits("two clients")
		h.limits.leave(b)
		waits("the last client")
		h.limits.given(c, "k")
		synctest.Wait()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the call waits for other keys")
		}
		h.limits.reported(a)
		h.limits.reported(c)
		h.limits.introduce(b)
		h.limits.begin(b)
		go func() { ended <- h.limits.reports(t.Context(), protocol.LimitTake, body("k")) }()
		waits("a client that reports after the others")
		h.limits.given(b, "k")
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), reportBound/4)
		defer cancel()
		for name, needs := range map[string][]byte{protocol.LimitTake: body("other"), protocol.LimitReset: body("k"), protocol.LimitList: body("k")} {
			if err := h.limits.reports(ctx, name, needs); err == nil {
				t.Errorf("%s of %s does not wait", name, needs)
			}
		}
	})
}

// Grants of one time count once when copies are added up. A client that lacks earlier
// grants of a key must not have a later one alone.
func TestAClientThatLacksGrantsOfAKeyIsSentAllOfThem(t *testing.T) {
	h, clients := limitHub(t, 2)
	for _, c := range clients {
		h.limits.introduce(c)
		h.limits.begin(c)
	}
	now := protocol.NodeMicros()
	restore(t, clients[0], record(t, "k", now-9, now-5))
	if n := behind(clients[1]); n != 1 {
		t.Fatalf("the client lacks %d keys, want 1", n)
	}
	r := driver.Request{Key: "k", Rates: []driver.Rate{{N: 9, Per: driver.MaxPer}}, Cost: 1}
	if a, err := h.limits.take(clients[0], &r); err != nil || !a.Granted || a.Remaining != 6 {
		t.Fatalf("%+v, %v", a, err)
	}
	if n := behind(clients[1]); n != 0 {
		t.Errorf("the client lacks %d keys after a decision, want 0", n)
	}
	if n := clients[0].copies.Load(); n != 0 {
		t.Errorf("the client that lacks nothing was sent %d bytes of records beside the decision", n)
	}
	if n, all := int(clients[1].copies.Load()), clients[1].line.Backlog(); n == 0 || n != all {
		t.Errorf("the client was sent %d bytes of records in %d, want the earlier grants with the decision, and nothing else", n, all)
	}
}

// A client that comes late reports the copy that the others have reported, too: a
// decision was made since then, and it is sent that.
func TestAClientThatReportsWhatAllHadBeforeADecisionIsSentTheDecision(t *testing.T) {
	h, clients := limitHub(t, 2)
	early, late := clients[0], clients[1]
	h.limits.introduce(early)
	h.limits.begin(early)
	text := record(t, "k", protocol.NodeMicros()-9)
	restore(t, early, text)
	r := driver.Request{Key: "k", Rates: []driver.Rate{{N: 9, Per: driver.MaxPer}}, Cost: 1}
	if a, err := h.limits.take(early, &r); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	h.limits.introduce(late)
	h.limits.begin(late)
	restore(t, late, text)
	if n := behind(late); n != 1 {
		t.Errorf("the client lacks %d keys, want 1", n)
	}
}

// A call waits for the clients of the earlier hub, whenever they begin their reports, and
// for each of them anew when it answers. A client that comes back later is not asked (W1).
func TestACallWaitsForTheClientsOfTheEarlierHubAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, clients := limitHub(t, 3)
		a, b, late := clients[0], clients[1], clients[2]
		start := time.Now()
		waits := func(name string, body []byte) <-chan time.Duration {
			over := make(chan time.Duration, 1)
			go func() {
				if err := h.limits.reports(t.Context(), name, body); err != nil {
					t.Error(err)
				}
				over <- time.Since(start)
			}()
			synctest.Wait()
			return over
		}
		h.limits.introduce(a)
		h.limits.begin(a)
		early := waits(protocol.LimitList, nil)
		h.limits.introduce(b)
		h.limits.begin(b)
		h.limits.leave(a)
		h.limits.leave(b)
		if d := <-early; d != 0 {
			t.Errorf("a call waited for %v after the last report", d)
		}
		for _, c := range []*Client{a, b} {
			h.limits.introduce(c)
			h.limits.begin(c)
		}
		all := waits(protocol.LimitList, nil)
		h.open()
		h.limits.introduce(late)
		h.limits.begin(late)
		one := waits(protocol.LimitTake, []byte(`{"key":"k"}`))
		time.Sleep(reportBound * 4 / 5)
		h.limits.given(a, "k")
		time.Sleep(reportBound * 4 / 5)
		h.limits.given(b, "k")
		if d := <-one; d != 2*(reportBound*4/5) {
			t.Errorf("the call of one key waited for %v, want the %v until the last answer", d, 2*(reportBound*4/5))
		}
		h.limits.reported(a)
		time.Sleep(reportBound / 5)
		h.limits.reported(b)
		if d := <-all; d != 2*(reportBound*4/5)+reportBound/5 {
			t.Errorf("the call of all keys waited for %v, want the %v until the last report", d, 2*(reportBound*4/5)+reportBound/5)
		}
	})
}

// A client that stops within its report is not asked for keys: nobody waits for the
// answer, and the questions would pile up.
func TestAClientThatStopsWithinItsReportIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, clients := limitHub(t, 1)
		h.limits.introduce(clients[0])
		h.limits.begin(clients[0])
		time.Sleep(reportBound)
		const keys = 1000
		for i := range keys {
			if err := h.limits.reports(t.Context(), protocol.LimitInspect, fmt.Appendf(nil, `{"key":"%d"}`, i)); err != nil {
				t.Fatal(err)
			}
		}
		if n, b := len(h.limits.report.wanted), clients[0].line.Backlog(); n+b > 0 {
			t.Errorf("%d keys are remembered, and %d bytes wait for the client", n, b)
		}
	})
}

// A client that comes late may have a record on its way when somebody resets its key:
// the record does not bring the grants back, whether the hub knew them or not.
func TestARecordOnItsWayDoesNotUndoAReset(t *testing.T) {
	for name, known := range map[string]bool{"known": true, "unknown": false} {
		t.Run("grants that are "+name, func(t *testing.T) {
			h, clients := limitHub(t, 2)
			here, late := clients[0], clients[1]
			h.limits.introduce(here)
			h.limits.reported(here)
			h.open()
			h.limits.introduce(late)
			h.limits.begin(late)
			used := func() int {
				t.Helper()
				s, err := h.limits.table.Inspect("k", nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(s.Rates) == 0 {
					return 0
				}
				return s.Rates[0].Used
			}
			text := record(t, "k", protocol.NodeMicros()-9)
			if known {
				restore(t, late, text)
				if n := used(); n != 1 {
					t.Fatalf("%d units are used, want 1", n)
				}
			}
			if err := h.limits.change(&protocol.News{Reset: &protocol.LimitOf{Key: "k"}}); err != nil {
				t.Fatal(err)
			}
			restore(t, late, text) // the rest of its report
			if n := used(); n != 0 {
				t.Errorf("%d units are used after the reset, want none", n)
			}
			h.limits.reported(late)
			restore(t, late, text) // beside the end of its report, for a call
			if n := used(); n != 0 {
				t.Errorf("%d units are used after the report, want none", n)
			}
		})
	}
}

// A client that breaks the format of a call or a record gets an error, and changes
// nothing.
func TestUndecodableCallsAndRecordsAreRefused(t *testing.T) {
	h, clients := limitHub(t, 1)
	h.limits.introduce(clients[0])
	bad := []byte(`{"key":"k","rates":1,"cost":1,"logs":1}`)
	for _, call := range []string{protocol.LimitTake, protocol.LimitWithdraw, protocol.LimitSettle, protocol.LimitPause, protocol.LimitReset, protocol.LimitInspect, protocol.LimitList} {
		if answer, err, ours := h.limits.serve(t.Context(), clients[0], call, bad[:len(bad)-1]); err == nil || !ours {
			t.Errorf("%s: %s, %v", call, answer, ours)
		}
	}
	d := protocol.NewDecoder(bad)
	if err := h.limits.restore(clients[0], &d); err == nil {
		t.Error("the record is accepted")
	}
	if keys := h.limits.table.Keys(); len(keys) != 0 {
		t.Errorf("the table has %q", keys)
	}
}

// The hub remembers resets for a report that may still bring the key. Later ones
// would pile up, and so would those from before.
func TestResetsAreNotRememberedAfterTheReport(t *testing.T) {
	for name, end := range map[string]func(*hubLimits, *Client){"of the limits": (*hubLimits).reported, "of the leases alone": (*hubLimits).leasesReported} {
		t.Run(name, func(t *testing.T) {
			h, clients := limitHub(t, 1)
			h.limits.introduce(clients[0])
			reset := func() {
				if err := h.limits.change(&protocol.News{Reset: &protocol.LimitOf{Key: "k"}}); err != nil {
					t.Fatal(err)
				}
			}
			reset()
			end(h.limits, clients[0])
			for _, when := range []string{"before", "after"} {
				if n := len(h.limits.copies[clients[0]].reset); n != 0 {
					t.Errorf("%d resets from %s the end of the report are remembered", n, when)
				}
				reset()
			}
		})
	}
}

// A client whose limits follow its leases has not reported them with these: what follows
// counts (W1).
func TestLimitsThatFollowTheLeasesCount(t *testing.T) {
	h, clients := limitHub(t, 1)
	h.limits.introduce(clients[0])
	h.limits.begin(clients[0])
	h.limits.leasesReported(clients[0])
	restore(t, clients[0], record(t, "k", protocol.NodeMicros()-9))
	s, err := h.limits.table.Inspect("k", nil)
	if err != nil || len(s.Rates) != 1 || s.Rates[0].Used != 1 {
		t.Errorf("used: %+v, %v; want 1 unit", s.Rates, err)
	}
}

// A client without limits is sent the grants that the hub has: it may be the only one at
// the next hub (W1).
func TestAClientWithoutLimitsGetsTheGrants(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	h.limits.copied = true
	r := driver.Request{Key: "k", Rates: []driver.Rate{{N: 1, Per: time.Hour}}, Cost: 1}
	if a, err := h.limits.table.Take(&r); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	got := make(chan struct{}, 100)
	joinHand(t, h, true, func(_ *handClient, typ protocol.Type, _ []byte) {
		if typ == protocol.LimitRecord {
			got <- struct{}{}
		}
	})
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Error("no grant was sent")
	}
}

// A part of a list has as many states as fit into it, and at least one. A client of an
// earlier build does not ask for parts, and gets the whole list.
func TestAPartOfAListIsNeitherLongNorEmpty(t *testing.T) {
	h, _ := limitHub(t, 0)
	for key, length := range map[string]int{"a": maxPart, "b": 1, "c": 1} {
		for i := range 2 { // the second one waits
			r := driver.Request{Key: key, Rates: []driver.Rate{{N: 1, Per: time.Hour}}, Cost: 1, MaxWait: -1, Ticket: fmt.Sprint(i), Seq: 1}
			r.Waiter.Host = strings.Repeat("h", length)
			if _, err := h.limits.table.Take(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		of   protocol.LimitOf
		want int
	}{{protocol.LimitOf{Part: true}, 1}, {protocol.LimitOf{Part: true, After: "a"}, 2}, {protocol.LimitOf{Part: true, After: "c"}, 0}, {protocol.LimitOf{}, 3}} {
		states, err := h.limits.list(&c.of)
		if err != nil || len(states) != c.want {
			t.Errorf("%+v has %d states, %v, want %d", c.of, len(states), err, c.want)
		}
	}
}

// A client that was stopped during a change of the hub and a Reset still has the
// grants and the pause of before when it comes back. Neither counts again, at this hub
// or at the next one (W13).
func TestACopyFromBeforeAResetDoesNotUndoIt(t *testing.T) {
	h, clients := limitHub(t, 2)
	here, late := clients[0], clients[1]
	r := driver.Request{Key: "k", Rates: []driver.Rate{{N: 9, Per: driver.MaxPer}}, Cost: 4}
	old := windows.New(protocol.NodeMicros) // the copy of both
	defer old.Close()
	if err := errors.Join(old.Learn(&r, time.UnixMicro(protocol.NodeMicros())), old.Pause("k", driver.Pause{Left: time.Hour})); err != nil {
		t.Fatal(err)
	}
	report := func(h *hubLimits, c *Client, table *windows.Table) {
		t.Helper()
		h.introduce(c)
		h.begin(c)
		for r := range table.Records() {
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			d := protocol.NewDecoder(text)
			if err := h.restore(c, &d); err != nil {
				t.Fatal(err)
			}
		}
		h.reported(c)
	}
	want := func(where string, table *windows.Table, used int) {
		t.Helper()
		s, err := table.Inspect("k", r.Rates)
		if err != nil || s.Rates[0].Used != used || s.Paused != nil {
			t.Errorf("%s: %d units are used, paused: %v, %v; want %d units, and no pause", where, s.Rates[0].Used, s.Paused, err, used)
		}
	}
	report(h.limits, here, old)
	h.open()
	reset := &protocol.News{Reset: &protocol.LimitOf{Key: "k"}}
	if err := h.limits.change(reset); err != nil {
		t.Fatal(err)
	}
	report(h.limits, late, old)
	want("the hub", h.limits.table, 0)
	r.Cost = 1
	if a, err := h.limits.take(here, &r); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	for behind(late) > 0 {
		runtime.Gosched()
	}

	next, clients := limitHub(t, 2)
	copied := windows.New(protocol.NodeMicros) // of the client that was here
	defer copied.Close()
	for r := range h.limits.table.Records() {
		if _, err := copied.Restore(r); err != nil {
			t.Fatal(err)
		}
	}
	report(next.limits, clients[0], copied)
	report(next.limits, clients[1], old)
	want("the next hub", next.limits.table, 1)
	for r := range next.limits.table.Records() { // which the late client lacks
		if _, err := old.Restore(r); err != nil {
			t.Fatal(err)
		}
	}
	want("the late client", old, 1)
}
