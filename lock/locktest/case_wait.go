package locktest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/megaframework/mega/lock"
)

var waitCases = []testCase{
	{rule: "L20", claim: "a wait shorter than the round trip gets a free key", run: shortWait},
	{rule: "L20", claim: "a wait ends when it has passed", run: waitEnds},
	{rule: "L21", claim: "a busy key is reported with its holders", run: busyHolders},
	{rule: "L21", claim: "a busy pool is reported with at most 16 holders", also: []string{"L15"}, run: manyHolders},
	{rule: "L21", claim: "a value of another program in the way is named after a wait, too", needs: []fault{"Foreign"}, run: namesForeign},
	{rule: "L21", claim: "a silent backend is not busy", remote: true, needs: []fault{"Partition"}, run: silentIsNotBusy},
	{rule: "L21", claim: "loss and return of the backend are reported once", remote: true, needs: []fault{"Refuse"}, run: lossIsReported},
	{rule: "L21", claim: "a full backend is not busy, and keeps its queue", remote: true, also: []string{"L7"}, needs: []fault{"Refuse"}, run: fullBackend},
	{rule: "L22", claim: "a grant past its deadline is released at once", run: staleGrant},
	{rule: "L22", claim: "grants that all arrive past their deadlines are an outage", run: staleGrants},
}

func shortWait(e *env) {
	p := e.process()
	defer p.plan.Add(Step{Op: Acquire, Delay: 20 * time.Millisecond})()
	for _, wait := range []time.Duration{0, time.Microsecond, time.Millisecond} {
		for i := range 5 {
			lease, err := p.Acquire(e.Ctx, e.key("k"), lock.Wait(wait))
			e.Must(err, "acquire a free key with a wait of %v, attempt %d", wait, i)
			e.releases(lease)
		}
	}
}

// waitEnds waits in each of the ways that a call can wait.
func waitEnds(e *env) {
	a, b := e.process(), e.process()
	ways := map[string][]lock.Option{"plain": nil, "unrenewed": {lock.NoRenew()}}
	if e.keeps("L7") {
		ways["FIFO"] = []lock.Option{lock.FIFO()}
	}
	if e.keeps("L15") {
		ways["pool"] = []lock.Option{lock.Slots(2)}
	}
	wait := e.Units(4)
	var calls []*asked
	began := time.Now()
	for name, opts := range ways {
		key := e.key(name)
		a.acquire(key, append(slices.Clip(opts), e.ttl(100))...)
		if name == "pool" {
			a.acquire(key, opts[0], e.ttl(100))
		}
		calls = append(calls, b.ask(key, append(slices.Clip(opts), lock.Wait(wait))...))
	}
	late := time.Since(began) // of the last call
	for _, c := range calls {
		e.Is(c.refused(), lock.ErrNotAcquired, "wait for %q", c.key)
		took := c.when.Sub(began)
		e.Want(took >= wait, "%q: a wait of %v ended after %v", c.key, wait, took)
		e.Want(took-late <= wait*3/2, "%q: a wait of %v took %v", c.key, wait, took-late)
	}
}

func namesForeign(e *env) {
	p := e.process()
	e.Must(e.h.Faults.Foreign(e.key("k")), "put a value of another program there")
	for _, wait := range []time.Duration{0, e.Unit / 4} {
		_, err := p.Acquire(e.Ctx, e.key("k"), lock.Wait(wait))
		busy, ok := errors.AsType[*lock.NotAcquiredError](err)
		e.Want(err != nil && (!ok || len(busy.Holders) == 1), "after a wait of %v: got %v, want one holder or an unavailable backend", wait, err)
	}
}

func busyHolders(e *env) {
	a, b := e.process(), e.process()
	ttl := e.Units(40)
	held := a.acquire(e.key("k"), lock.TTL(ttl), lock.Label("holder"))
	check := func(err error, want ...*lock.Lease) {
		busy, ok := errors.AsType[*lock.NotAcquiredError](err)
		e.Want(ok && len(busy.Holders) == len(want), "got %v, want %d holders", err, len(want))
		for i, h := range busy.Holders {
			e.Want(h.Slot == want[i].Slot() && h.Fence == want[i].Fence(), "holder %d is %+v, want slot %d and fence %d", i, h, want[i].Slot(), want[i].Fence())
			e.Want(ttl/2 < h.Left && h.Left <= ttl, "holder %d has %v left of %v", i, h.Left, ttl)
			e.Want(h.Label == "holder", "holder %d is %v", i, h.Holder)
		}
	}
	// A grant that is pushed lives 2 s until its first renewal.
	renewed := func(key string) {
		e.Soon("the holders of "+key+" have their TTL", func() bool {
			return !slices.ContainsFunc(e.inspect(b.opened, key).Holders, func(h lock.Holding) bool { return h.Left <= ttl/2 })
		})
	}
	renewed(e.key("k"))
	_, err := b.try(e.key("k"))
	check(err, held)
	_, err = b.Acquire(e.Ctx, e.key("k"), lock.Wait(e.Unit/4))
	check(err, held)
	if e.keeps("L15") {
		pool := []lock.Option{lock.Slots(2), lock.TTL(ttl), lock.Label("holder")}
		one, two := a.acquire(e.key("pool"), pool...), a.acquire(e.key("pool"), pool...)
		renewed(e.key("pool"))
		_, err = b.try(e.key("pool"), pool[0])
		check(err, one, two)
		_, err = b.Acquire(e.Ctx, e.key("pool"), pool[0], lock.Wait(e.Unit/4))
		check(err, one, two)
		e.releases(one, two)
	}
	e.releases(held)
}

// manyHolders fills a pool whose holders would make an error of many lines.
func manyHolders(e *env) {
	a, b := e.process(), e.process()
	const size = 20
	var held []*lock.Lease
	for range size {
		held = append(held, a.acquire(e.key("pool"), lock.Slots(size), e.ttl(100)))
	}
	for _, wait := range []time.Duration{0, e.Unit / 4} {
		_, err := b.Acquire(e.Ctx, e.key("pool"), lock.Slots(size), lock.Wait(wait))
		busy, ok := errors.AsType[*lock.NotAcquiredError](err)
		e.Want(ok && len(busy.Holders) == 16, "with a Wait of %v the error is %v, want 16 holders", wait, err)
	}
	e.releases(held...)
}

// silentIsNotBusy cuts off a waiter: at the end of its wait, the last
// confirmation that the key is busy is older than 2 s.
func silentIsNotBusy(e *env) {
	a, b := e.process(), e.process()
	holder := a.acquire(e.key("k"), e.ttl(100))
	wait := 5*time.Second + e.Units(1)
	call := b.ask(e.key("k"), lock.Wait(wait), lock.Label("cut off"))
	b.isQueued(e.key("k"), "cut off")
	e.untilQueued()
	heal, err := e.h.Faults.Partition(b.opened)
	e.Must(err, "partition")
	defer func() { e.Must(heal(), "heal") }()
	err = call.refused()
	e.Want(isUnavailable(err), "after a silence of %v: got %v, want ErrUnavailable", wait, err)
	e.releases(holder)
}

func lossIsReported(e *env) {
	p := e.process()
	p.free(e.key("k"))
	undo, err := e.h.Faults.Refuse()
	e.Must(err, "refuse")
	for i := range 5 {
		_, err := p.try(e.key(fmt.Sprint("k", i)))
		e.Want(isUnavailable(err), "try: got %v, want ErrUnavailable", err)
	}
	e.Soon("the loss is reported", func() bool { return len(eventsOf[lock.Unavailable](p)) > 0 })
	e.Want(p.Unavailable() != nil, "the Locker reports no outage")
	e.Never(e.Units(2), "the return is reported during the outage", func() bool { return len(eventsOf[lock.Available](p)) > 0 })
	e.Must(undo(), "undo")
	e.Soon("the return is reported", func() bool { return len(eventsOf[lock.Available](p)) > 0 })
	e.Want(len(eventsOf[lock.Unavailable](p)) == 1 && len(eventsOf[lock.Available](p)) == 1, "reported %d losses and %d returns", len(eventsOf[lock.Unavailable](p)), len(eventsOf[lock.Available](p)))
	e.Must(p.Unavailable(), "after the return")
	p.free(e.key("k"))
}

// fullBackend keeps the backend full for longer than a waiter may be silent.
func fullBackend(e *env) {
	a, b, c, newcomer := e.process(), e.process(), e.process(), e.process()
	holder := a.acquire(e.key("k"), lock.TTL(time.Minute))
	first := b.queue(e.key("k"), "first", lock.TTL(time.Minute))
	second := c.queue(e.key("k"), "second", lock.TTL(time.Minute))
	undo, err := e.h.Faults.Refuse()
	e.Must(err, "refuse")
	e.Sleep(3 * time.Second)
	_, err = newcomer.try(e.key("free"))
	e.Want(isUnavailable(err), "try a free key: got %v, want ErrUnavailable", err)
	e.Must(undo(), "undo")
	e.serveInOrder(holder, []*asked{first, second})
}

func staleGrant(e *env) {
	a, b := e.process(), e.process()
	for name, opts := range map[string][]lock.Option{"renewed": nil, "unrenewed": {lock.NoRenew()}} {
		a.plan.Add(Step{Op: Acquire, Stale: true, Times: 1})
		lease := a.acquire(e.key(name), append(opts, e.ttl(100))...)
		took := a.plan.Calls(Acquire)
		e.live(lease)
		s, err := b.Inspect(e.Ctx, e.key(name))
		e.Must(err, "inspect")
		e.Want(len(s.Holders) == 1 && s.Holders[0].Fence == lease.Fence(), "after %d requests the holders are %+v, want fence %d", took, s.Holders, lease.Fence())
		e.releases(lease)
		b.freeWithin(e.Units(10), e.key(name))
	}
}

func staleGrants(e *env) {
	a, b := e.process(), e.process()
	heal := a.plan.Add(Step{Op: Acquire, Stale: true})
	call := a.ask(e.key("k"), e.ttl(100))
	err := call.refused()
	heal()
	e.Want(isUnavailable(err), "got %v, want ErrUnavailable", err)
	b.freeWithin(e.Units(10), e.key("k"))
}
