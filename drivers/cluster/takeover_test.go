//go:build linux || darwin

package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock/driver"
)

// hub returns the process that is the hub, once there is one.
func (c *court) hub(of []*proc) *proc {
	c.t.Helper()
	place, err := rendezvous.Open(c.orders.Socket)
	if err != nil {
		c.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		conn, peer, err := place.Dial(c.t.Context())
		if err != nil {
			continue
		}
		conn.Close()
		for _, p := range of {
			if p.PID() == peer.PID {
				return p
			}
		}
	}
	c.t.Fatal("nobody is the hub")
	return nil
}

// reigns returns when which process was the hub, in the order in which they
// began. One that was killed was it until then.
func (c *court) reigns(killed map[string]int64) (all []history.Belief) {
	c.t.Helper()
	f, err := os.Open(c.orders.Reigns)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r reign
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			c.t.Fatal(err)
		}
		if r.Begins {
			to := int64(history.Never)
			if at, ok := killed[r.Name]; ok {
				to = at
			}
			all = append(all, history.Belief{Client: r.Name, Key: "the seat", From: r.At, To: to})
			continue
		}
		for i := range all {
			if all[i].Client == r.Name {
				all[i].To = min(all[i].To, r.At)
			}
		}
	}
	return all
}

// verify checks that no two processes were ever sure of the same lock, that
// fences grew, and that there were never two hubs.
func (c *court) verify(killed map[string]int64) (history.History, []history.Belief) {
	c.t.Helper()
	h, err := history.Read(c.orders.History)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := h.CheckBeliefs(0); err != nil {
		c.t.Error(err)
	}
	reigns := c.reigns(killed)
	if o := (history.History{Beliefs: reigns}).Overlaps(); len(o) > 0 {
		c.t.Errorf("two hubs at once: %v", o)
	}
	return h, reigns
}

// The hub is killed, again and again, in the midst of everything, at once with
// another process or while it takes over: nobody ever holds what another one
// holds, there are never two hubs, and the locks go on at once.
func TestHubsAreKilledInALoop(t *testing.T) {
	const ttl = 2 * time.Second
	c := newCourt(t, ttl)
	var all []*proc
	for range 6 {
		all = append(all, c.come(true))
	}
	killed := make(map[string]int64)
	var kills []int64
	for round := range suite.Scaled(50) {
		victims := []*proc{c.hub(all)}
		if other := all[round%len(all)]; round%5 == 4 && other != victims[0] {
			victims = append(victims, other)
		}
		at := c.kill(victims...)
		for _, v := range victims {
			killed[v.name] = at
		}
		kills = append(kills, at)
		all = slices.DeleteFunc(all, func(p *proc) bool { return slices.Contains(victims, p) })
		if round%5 == 2 { // the next one, as soon as it answers
			next := c.hub(all)
			killed[next.name] = c.kill(next)
			all = slices.DeleteFunc(all, func(p *proc) bool { return p == next })
		}
		for len(all) < 6 {
			all = append(all, c.come(true))
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.works(all)
	for _, p := range all {
		p.leave()
	}
	h, reigns := c.verify(killed)
	pauses := pauses(h, kills)
	grants := len(h.Beliefs)
	t.Logf("%d hubs, %d kills, %d grants; from the kill to the next grant: median %v, p90 %v, max %v", len(reigns), len(killed), grants,
		pauses[len(pauses)/2], pauses[len(pauses)*9/10], pauses[len(pauses)-1])
	// A hub that waits for the leases of the last one takes the TTL.
	if median := pauses[len(pauses)/2]; median > ttl/2 {
		t.Errorf("it took %v (median), the TTL is %v", median, ttl)
	}
	if grants < len(kills) { // on an idle machine there are hundreds for each
		t.Errorf("only %d grants", grants)
	}
}

// pauses returns how long after each kill the first grant came that was asked
// for later, sorted.
func pauses(h history.History, kills []int64) (all []time.Duration) {
	for _, at := range kills {
		first := int64(history.Never)
		for _, op := range h.Ops {
			if op.Kind == history.Acquire && op.Outcome == history.OK && op.Call > at {
				first = min(first, op.Return)
			}
		}
		all = append(all, time.Duration(first-at))
	}
	slices.Sort(all)
	return all
}

// Who holds keeps what it has over any number of hubs, who waits keeps its place,
// and fences go on, whether the hub is killed or leaves, and whether it holds,
// waits, or neither.
func TestHoldersAndWaitersOutliveTheirHubs(t *testing.T) {
	c := newCourt(t, 10*time.Second)
	var order []*proc // the holder, and who waits
	come := func(p *proc) {
		p.tell("take k")
		order = append(order, p)
		c.queued(order)
	}
	order = append(order, c.come(false))
	order[0].tell("take k")
	last := fence(t, order[0].says("took k"))
	for range 4 {
		come(c.come(false))
	}
	killed := make(map[string]int64)
	for round := range suite.Scaled(10) {
		hub := c.hub(order)
		if round%2 == 0 {
			killed[hub.name] = c.kill(hub)
		} else {
			hub.leave()
		}
		holder := order[0]
		order = slices.DeleteFunc(order, func(p *proc) bool { return p == hub })
		if hub != holder {
			c.queued(order)
			holder.tell("give k")
			holder.says("gave k")
			order = order[1:]
		}
		f := fence(t, order[0].says("took k"))
		if f <= last {
			t.Errorf("fence %d after %d", f, last)
		}
		last = f
		for _, p := range order {
			p.silent()
		}
		if hub != holder {
			come(holder)
		}
		come(c.come(false))
		if len(order) > 5 {
			t.Fatalf("%d processes", len(order))
		}
	}
	c.verify(killed)
}

// queued waits until all but the first of order are in the queue, and know that.
func (c *court) queued(order []*proc) {
	c.t.Helper()
	want := fmt.Sprint("sees k ", len(order)-1)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		order[0].tell("look k")
		if got := order[0].says(""); got == want || strings.HasPrefix(got, "took") {
			if got != want {
				c.t.Fatalf("%s says %q", order[0].name, got)
			}
			break
		} else if time.Now().After(end) {
			c.t.Fatalf("%s %s, want %q", order[0].name, got, want)
		}
	}
	for _, p := range order[1:] { // the answer comes after the one to its request
		p.tell("look k")
		p.says(want)
	}
}

// A client that is stopped while another process takes over is waited for until
// what it had has expired, and no longer; then it learns.
func TestAClientThatIsStoppedHoldsUpATakeoverUntilItsLeaseEnds(t *testing.T) {
	const ttl = time.Second
	c := newCourt(t, ttl)
	all := []*proc{c.come(false), c.come(false), c.come(false)}
	hub := c.hub(all)
	all = slices.DeleteFunc(all, func(p *proc) bool { return p == hub })
	stopped, other := all[0], all[1]
	asked := time.Now()
	stopped.tell("take a")
	first := fence(t, stopped.says("took a"))
	if err := stopped.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	killed := map[string]int64{hub.name: c.kill(hub)}
	other.tell("take b") // which nobody has: but that is not known
	other.tell("take a")
	for range 2 {
		other.says("took")
		if took := time.Since(paused); time.Since(asked) < ttl || took > ttl+5*time.Second {
			t.Errorf("it took %v, and %v since the lease was asked for; the TTL is %v", took, time.Since(asked), ttl)
		} else {
			t.Logf("it took %v, the TTL is %v", took, ttl)
		}
	}
	if err := stopped.Continue(); err != nil {
		t.Fatal(err)
	}
	stopped.says("lost a")
	other.tell("give a")
	other.says("gave a")
	stopped.tell("take a")
	if f := fence(t, stopped.says("took a")); f <= first {
		t.Errorf("fence %d after %d", f, first)
	}
	c.verify(killed)
}

// While the next hub waits for the leases of a stopped client, a socket that is
// removed comes back, too.
func TestASocketThatIsRemovedDuringATakeOverComesBack(t *testing.T) {
	c := newCourt(t, time.Hour)
	all := []*proc{c.come(false), c.come(false), c.come(false)}
	hub := c.hub(all)
	all = slices.DeleteFunc(all, func(p *proc) bool { return p == hub })
	stopped, next := all[0], all[1]
	stopped.tell("take a")
	stopped.says("took a")
	must(t, stopped.Pause())
	killed := map[string]int64{hub.name: c.kill(hub)}
	c.hub([]*proc{next})
	must(t, os.Remove(c.orders.Socket))
	c.come(false).tell("take b")
	next.silent() // it has granted nothing
	must(t, stopped.Continue())
	c.verify(killed)
}

// A client that holds nothing and is stopped holds up nobody once what the last
// hub gave has expired, and a hub that gave nothing does not wait at all.
func TestAHubThatGaveNothingIsNotWaitedFor(t *testing.T) {
	c := newCourt(t, time.Hour)
	all := []*proc{c.come(false), c.come(false), c.come(false)}
	hub := c.hub(all)
	all = slices.DeleteFunc(all, func(p *proc) bool { return p == hub })
	if err := all[0].Pause(); err != nil {
		t.Fatal(err)
	}
	killed := map[string]int64{hub.name: c.kill(hub)}
	all[1].tell("take k")
	all[1].says("took k")
	c.verify(killed)
}

// One that holds nothing for long is not waited for long, whatever others hold.
func TestAStoppedClientIsWaitedForByItsOwnLeases(t *testing.T) {
	c := newCourt(t, 500*time.Millisecond)
	stopped := c.come(false)
	c.orders.TTL = time.Hour
	long, other := c.come(false), c.come(false)
	all := []*proc{stopped, long, other}
	for c.hub(all) == stopped { // which is to be another one
		stopped.leave()
		c.orders.TTL = 500 * time.Millisecond
		stopped = c.come(false)
		c.orders.TTL = time.Hour
		all[0] = stopped
	}
	stopped.tell("take a")
	stopped.says("took a")
	long.tell("take b")
	long.says("took b")
	if err := stopped.Pause(); err != nil {
		t.Fatal(err)
	}
	hub := c.hub(all)
	killed := map[string]int64{hub.name: c.kill(hub)}
	if hub == other {
		other = long
	}
	other.tell("take a")
	other.says("took a") // and does not wait for the leases of an hour
	if err := stopped.Continue(); err != nil {
		t.Fatal(err)
	}
	stopped.says("lost a")
	c.verify(killed)
}

// A hub that is stopped stays the hub: nobody can know what it will do when it
// goes on. Leases end by their deadlines, calls say that it does not answer, and
// when it goes on all is as it was.
func TestAHubThatIsStoppedIsNotReplaced(t *testing.T) {
	c := newCourt(t, 600*time.Millisecond)
	all := []*proc{c.come(false), c.come(false)}
	hub := c.hub(all)
	other := all[0]
	if hub == other {
		other = all[1]
	}
	other.tell("take k")
	other.says("took k")
	if err := hub.Pause(); err != nil {
		t.Fatal(err)
	}
	if line := other.says("lost k"); !strings.Contains(line, "unreachable") {
		t.Error(line)
	}
	other.tell("try j")
	line := other.says("tried j")
	for _, says := range []string{"unavailable", fmt.Sprint("process ", hub.PID()), "stopped"} {
		if !strings.Contains(line, says) {
			t.Errorf("%q does not tell %q", line, says)
		}
	}
	if !refused(t, c.orders.Socket, fmt.Sprint("process ", hub.PID()), "stopped") {
		t.Error("connected to a hub that is stopped")
	}
	if err := hub.Continue(); err != nil {
		t.Fatal(err)
	}
	if line := other.tries("j"); line != "tried j <nil>" {
		t.Error(line)
	}
	other.tell("take k")
	other.says("took k")
	if c.hub(all) != hub {
		t.Error("there is another hub")
	}
	if _, reigns := c.verify(nil); len(reigns) != 1 {
		t.Errorf("%d hubs", len(reigns))
	}
}

// What a process has not given back when it leaves is good until its TTL has
// passed, also if the hub that knew of it is gone by then.
func TestWhatALeaverHoldsOutlivesTheHub(t *testing.T) {
	const ttl = time.Second
	socket := socketPath(t)
	hub := meetAt(t, socket)
	leaver, other := meetAt(t, socket), meetAt(t, socket)
	if !hub.hasHub() {
		t.Fatal("the first one has no hub")
	}
	r := driver.Request{Key: "k", Token: "first", TTL: ttl, Slots: 1, Fences: 1}
	asked := time.Now()
	first, err := leaver.Lock().Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{leaver, hub} {
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.Token, r.Wait = "second", -1
	second, err := other.Lock().Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(asked); took < ttl-10*time.Millisecond || took > ttl+bound {
		t.Errorf("it took %v, the TTL is %v", took, ttl)
	}
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
}

// What a holder has started does not keep its locks, whether it was the hub or not.
func TestChildrenOfTheDeadKeepNoLocks(t *testing.T) {
	c := newCourt(t, time.Minute)
	for _, hub := range []bool{true, false} {
		all := []*proc{c.come(false), c.come(false), c.come(false)}
		holder := c.hub(all)
		if !hub {
			holder = all[(slices.Index(all, holder)+1)%len(all)]
		}
		all = slices.DeleteFunc(all, func(p *proc) bool { return p == holder })
		holder.tell("take k")
		holder.says("took k")
		holder.tell("start sleep")
		holder.says("started")
		t.Cleanup(func() { _ = syscall.Kill(-holder.PID(), syscall.SIGKILL) }) // what it has started
		all[0].tell("take k")
		c.recorder.Gone(holder.name)
		killed := time.Now()
		if err := syscall.Kill(holder.PID(), syscall.SIGKILL); err != nil { // and not its group
			t.Fatal(err)
		}
		all[0].says("took k")
		if took := time.Since(killed); took > 10*time.Second {
			t.Errorf("it took %v (hub: %v)", took, hub)
		}
		for _, p := range all {
			p.leave()
		}
	}
}

// After a take-over messages go on, and who may have missed some is told once.
func TestMessagesGoOnAfterATakeover(t *testing.T) {
	c := newCourt(t, 10*time.Second)
	all := []*proc{c.come(false), c.come(false), c.come(false), c.come(false)}
	killed := make(map[string]int64)
	for _, p := range all {
		p.tell("hear a.*")
		p.says("hears")
	}
	for round := range 2 {
		hub := c.hub(all)
		killed[hub.name] = c.kill(hub)
		all = slices.DeleteFunc(all, func(p *proc) bool { return p == hub })
		for _, p := range all { // said until all hear: a subscription of another process may not be back
			for heard := ""; !strings.HasSuffix(heard, "missed -1"); {
				all[0].tell(fmt.Sprint("say a.", round))
				select {
				case heard = <-p.lines:
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
		last := fmt.Sprint("a.last-", round)
		all[0].tell("say " + last)
		for _, p := range all {
			for heard := ""; !strings.HasPrefix(heard, "heard "+last); {
				if heard = p.says("heard"); !strings.HasSuffix(heard, "missed 0") {
					t.Errorf("%s %s, want to be told once", p.name, heard)
				}
			}
		}
	}
	c.verify(killed)
}

// Of processes that start in the same instant one is the hub.
func TestProcessesThatStartAtOnceHaveOneHub(t *testing.T) {
	for range suite.Scaled(3) {
		c := newCourt(t, 10*time.Second)
		var all []*proc
		for i := range 8 {
			o := c.orders
			o.Name = fmt.Sprint("p", i)
			all = append(all, spawnAt(t, o))
		}
		for _, p := range all {
			p.says("ready")
			p.tell("try k")
		}
		for _, p := range all {
			line := p.says("tried k")
			if strings.Contains(line, "unavailable") {
				line = p.tries("k")
			}
			if !strings.HasSuffix(line, "<nil>") && !strings.Contains(line, "not acquired") {
				t.Error(line)
			}
		}
		if _, reigns := c.verify(nil); len(reigns) != 1 {
			t.Errorf("%d hubs: %v", len(reigns), reigns)
		}
		for _, p := range all {
			_ = p.Kill()
		}
	}
}

func fence(t *testing.T, line string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(line[strings.LastIndex(line, " ")+1:], 10, 64)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return n
}
