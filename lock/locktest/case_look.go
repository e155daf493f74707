package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

var lookCases = []testCase{
	{rule: "L23", claim: "the driver lists holders and waiters, in the order of service", also: []string{"L7", "L15"}, run: looksAreFaithful},
	{rule: "L23", claim: "Inspect changes nothing", run: looksChangeNothing},
	{rule: "L23", claim: "Inspect and List delay no renewal and no wake-up", run: manyLooks},
	{rule: "L23", claim: "a renewal does not wait for a list", needs: []fault{"Delay"}, run: renewsDuringAList},
	{rule: "L23", claim: "a value of another program is skipped and named", needs: []fault{"Foreign"}, run: looksSkip(func(f Faults) func(string) error { return f.Foreign })},
	{rule: "L23", claim: "a value of another kind is skipped and named", needs: []fault{"Corrupt"}, run: looksSkip(func(f Faults) func(string) error { return f.Corrupt })},
	{rule: "L16", claim: "a force refuses a value that is not a lease", needs: []fault{"Foreign"}, run: forceRefusesForeign},
}

// oddLabels are valid labels that a data format might not preserve.
var oddLabels = []string{
	"", " ", `"quoted" 'twice'`, `back\slash`, "{brace}", "}{", "%s %7B", "a:b|c,d;e", "naïve 鍵 🔑", "</script>", "null", "0",
	strings.Repeat("x", 128), strings.Repeat("鍵", 42),
}

func looksAreFaithful(e *env) {
	d, other := e.driver(), e.driver()
	slots := len(oddLabels)
	since := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	holder := func(kind string, i int) driver.Holder {
		return driver.Holder{App: kind + "{" + `"`, Host: "höst", PID: 1 + i, Worker: i, Label: oddLabels[i%slots], Request: fmt.Sprint("r-", i), Since: since}
	}
	request := func(kind string, i int) driver.Request {
		r := e.longRequest(e.key("pool"))
		r.Slots, r.FIFO, r.Holder = slots, true, holder(kind, i)
		return r
	}
	grants := make([]driver.Grant, slots)
	for i := range grants {
		grants[i] = e.grant([]driver.Driver{d, other}[i%2], request("holder", i))
	}
	type answer struct {
		i   int
		g   driver.Grant
		err error
	}
	answers := make(chan answer, slots)
	for i := range slots {
		r := request("waiter", i)
		r.Wait = -1
		e.Async(func() {
			g, err := []driver.Driver{other, d}[i%2].Acquire(e.Ctx, r)
			answers <- answer{i, g, err}
		})
		e.Soon("it is queued", func() bool { return len(e.inspect(d, r.Key).Waiters) == i+1 })
	}
	s := e.inspect(other, e.key("pool"))
	e.Want(s.Key == e.key("pool") && s.Size == slots && s.Skipped == "", "the pool is %q with %d slots, skipped %q", s.Key, s.Size, s.Skipped)
	unused := e.inspect(d, e.key("unused"))
	e.Want(unused.Size == 1 && unused.Free() == 1, "a key that is not in use has %d slots, %d free", unused.Size, unused.Free())
	for i, h := range s.Holders {
		g := grants[i]
		e.Want(h.Slot == i && h.Fence == g.Fence && 0 < h.Left && h.Left <= g.TTL, "holder %d is %+v, want fence %d", i, h, g.Fence)
		e.sameHolder(h.Holder, holder("holder", i))
	}
	for i, h := range s.Waiters {
		e.sameHolder(h, holder("waiter", i))
	}
	for want := range slots { // the waiters are served in the order of Inspect
		e.Must(e.release(d, grants[want]), "release")
		select {
		case a := <-answers:
			e.Must(a.err, "wait")
			e.Want(a.i == want, "number %d was served, want %d", a.i, want)
			defer func() { _ = e.release(d, a.g) }()
		case <-time.After(e.Patience()):
			e.Fail("nobody was served")
		}
	}
}

// sameHolder compares the fields that a backend preserves exactly; times may
// lose digits.
func (e *env) sameHolder(got, want driver.Holder) {
	apart := got.Since.Sub(want.Since).Abs()
	got.Since, want.Since = time.Time{}, time.Time{}
	e.Want(got == want && apart <= time.Millisecond, "got the holder %+v, want %+v", got, want)
}

// looksChangeNothing inspects a lease that is about to expire, and a lease with
// waiters.
func looksChangeNothing(e *env) {
	d := e.driver()
	r := e.request(e.key("k"))
	r.TTL = e.Units(3)
	began := time.Now()
	g := e.grant(d, r)
	e.Eventually(e.Units(3)+2*time.Second, "it has expired while it was looked at", func() bool {
		ctx, cancel := e.Bounded()
		defer cancel()
		list, err := d.List(ctx, e.key(""))
		e.Must(err, "list")
		s := e.inspect(d, r.Key)
		e.Want(len(s.Holders) <= 1 && len(list) <= 1, "it is %+v and listed as %+v", s, list)
		return len(s.Holders) == 0 && len(list) == 0
	})
	e.Want(time.Since(began) >= e.Units(3)-driver.Margin(r.TTL)-e.Unit/4, "it expired after %v", time.Since(began))
	e.Is(e.renew(d, g).Err, driver.ErrLost, "renew the expired grant")
}

// manyLooks makes a process call List and Inspect without a pause while it
// holds a lease and waits for another.
func manyLooks(e *env) {
	a, b := e.process(), e.process()
	for i := range suite.Scaled(200) {
		a.acquire(e.key(fmt.Sprint("held-", i)), e.ttl(100))
	}
	holder := a.acquire(e.key("waited"), e.ttl(100))
	next := b.queue(e.key("waited"), "next", e.ttl(100))
	lease := b.acquire(e.key("held"), e.ttl(4))
	ctx, stop := context.WithCancel(e.Ctx)
	defer stop()
	for range 4 {
		e.Async(func() {
			for ctx.Err() == nil {
				_, _ = b.List(ctx, e.prefix)
				_, _ = b.Inspect(ctx, e.key("waited"))
				e.breathe()
			}
		})
	}
	renewals := b.plan.Calls(Renew)
	e.Sleep(max(3*time.Second, e.Units(6))) // longer than a waiter may be silent, and than a TTL
	e.Want(b.plan.Calls(Renew) > renewals, "while it lists, nothing is renewed")
	e.live(lease)
	e.releases(holder)
	began := time.Now()
	got := next.leaseWithin(e.Patience())
	took := next.when.Sub(began)
	e.Want(took < time.Second+2*e.Unit, "while its process lists, a waiter was woken after %v", took)
	e.releases(got, lease)
}

// renewsDuringAList delays the backend's answer to a list, and looks for a
// renewal that ends while the list is under way. A busy machine may delay a
// renewal, so one list of several suffices.
func renewsDuringAList(e *env) {
	p := e.process()
	lease := p.acquire(e.key("k"), e.ttl(3), e.long())
	for range 10 {
		e.Must(e.h.Faults.Delay(p.opened, List, e.Units(6)), "delay")
		before, listed := lease.Deadline(), make(chan struct{})
		e.Async(func() {
			defer close(listed)
			_, _ = p.List(e.Ctx, e.prefix) // a driver may give up
		})
		if e.renewedBefore(listed, lease, before) {
			e.releases(lease)
			return
		}
	}
	e.Fail("while a list is under way, nothing is renewed")
}

// renewedBefore reports whether the lease was renewed while the list was under
// way.
func (e *env) renewedBefore(listed <-chan struct{}, lease *lock.Lease, before time.Time) bool {
	for {
		renewed := lease.Deadline().After(before)
		select {
		case <-listed:
			return false
		default:
		}
		if renewed {
			e.Await(listed, "the list")
			return true
		}
		e.Sleep(e.Unit / 64)
	}
}

// breathe sleeps so that fake time can advance.
func (e *env) breathe() {
	if e.h.FakeTime {
		time.Sleep(20 * time.Millisecond)
	}
}

// looksSkip puts data that is not a lock between locks.
func looksSkip(fault func(Faults) func(string) error) func(*env) {
	return func(e *env) {
		p := e.process()
		first, last := p.acquire(e.key("a")), p.acquire(e.key("z"))
		e.Must(fault(e.h.Faults)(e.key("m")), "put something else there")
		states, err := p.List(e.Ctx, e.key(""))
		e.Must(err, "list")
		keys := make([]string, len(states))
		for i, s := range states {
			keys[i] = s.Key
		}
		e.Want(slices.Equal(keys, []string{e.key("a"), e.key("m"), e.key("z")}), "listed %q", keys)
		for _, s := range states {
			skipped := s.Key == e.key("m")
			e.Want((s.Skipped != "") == skipped && (len(s.Holders) == 0) == skipped, "listed %+v", s)
		}
		s, err := p.Inspect(e.Ctx, e.key("m"))
		e.Must(err, "inspect what is not a lock")
		e.Want(s.Skipped != "" && len(s.Holders)+len(s.Waiters) == 0, "it is shown as %+v", s)
		e.releases(first, last)
	}
}

func forceRefusesForeign(e *env) {
	p := e.process()
	e.Must(e.h.Faults.Foreign(e.key("k")), "put a value of another program there")
	n, err := p.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Want(err != nil && n == 0, "forced %d, %v; want a refusal", n, err)
	_, err = p.try(e.key("k"))
	e.Want(err != nil && !errors.Is(err, lock.ErrClosed), "the key was granted over a value of another program")
	s, err := p.Inspect(e.Ctx, e.key("k"))
	e.Must(err, "inspect")
	e.Want(s.Skipped != "", "the value is gone: %+v", s)
}
