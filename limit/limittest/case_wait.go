package limittest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
)

var waitCases = []testCase{
	{rule: "W5", claim: "calls of a process are served in their order, none early", run: inOrder},
	{rule: "W5", claim: "processes take turns", run: takeTurns},
	{rule: "W5", claim: "a ticket is not overtaken", run: notOvertaken},
	{rule: "W5", claim: "waiting needs few calls", run: fewCalls},
	{rule: "W5", claim: "tickets are served in their order", run: ticketOrder},
	{rule: "W6", claim: "what is known to be too late is refused at once", run: tooLate},
	{rule: "W6", claim: "a call behind another one that is known to be too late is refused at once", run: tooLateBehind},
	{rule: "W6", claim: "calls that come together are allowed while units are free, for any MaxWait", run: together},
	{rule: "W6", claim: "the end of the context ends the wait without a trace", run: cancelled},
	{rule: "W9", claim: "the same request has one grant", run: sameRequest},
	{rule: "W9", claim: "a lost reply does not consume twice", run: lostReply, needs: []fault{"DropReply"}},
	{rule: "W9", claim: "a withdrawn request is refused later", run: barredRequest},
}

func inOrder(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(2, 0.5))
	var mu sync.Mutex
	var order []int
	l := new(ledger)
	var over []<-chan struct{}
	for i := range 7 {
		over = append(over, e.Async(func() {
			sent := time.Now()
			permit := p.wait(key, m)
			l.add(0, 1, permit.At(), sent)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, i)
		}))
		e.Soon("the call waits or was served", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return int(p.Stats().Waiting)+len(order) == i+1
		})
		e.Pass(0.02) // from the count to the queue
	}
	for _, c := range over {
		e.Await(c, "the end of a wait")
	}
	e.Want(slices.IsSorted(order), "served in the order %v", order)
	l.check(e, m.Rates...)
}

func takeTurns(e *env) {
	per, units := 0.25, max(suite.Scaled(8), 4)
	if !e.h.FakeTime {
		per, units = 1, max(suite.Scaled(8), 8) // 60 grants a second are too many for a busy machine
	}
	rate, key := e.per(10, per), e.key("k")
	all := []*process{e.process(), e.process(), e.process()}
	l, start := new(ledger), time.Now()
	e.process().granted(key, rate.N, rate) // there is a turn only where somebody waits
	end := start.Add(e.Units(float64(units)))
	e.All(6, func(i int) { // one, two and three callers
		who := []int{0, 1, 1, 2, 2, 2}[i]
		for time.Now().Before(end) {
			sent := time.Now()
			permit, err := all[who].Wait(e.Ctx, key, limitOf(rate), limit.MaxWait(max(time.Until(end), 0)))
			if err != nil {
				e.Is(err, limit.ErrLimited, "Wait")
				return
			}
			l.add(who, 1, permit.At(), sent)
		}
	})
	took := time.Since(start) - rate.Per
	l.check(e, rate)
	least, fair := 0.6, 0.95 // on real time the machine may be slow
	if e.h.FakeTime {
		least, fair = 0.95, 0.99
	}
	shares := []int{l.shares[0], l.shares[1], l.shares[2]}
	e.Want(suite.Jain(shares) >= fair, "the processes had %v units", shares)
	use := float64(l.units()) / (float64(rate.N) * float64(took) / float64(rate.Per))
	e.Want(use >= least, "%.3f of the rate was used", use)
}

func notOvertaken(e *env) {
	a, b, key, rate := e.process(), e.process(), e.key("k"), e.per(4, 2)
	a.granted(key, 3, rate)
	waiting := a.queue(key, 2, false, rate)
	e.Want(!waiting.Granted && waiting.Again > 0, "got %+v", waiting)
	got := b.take(key, 1, rate)
	e.Want(!got.Granted, "one unit is free, but a ticket waits for two")
	e.Want(b.queue(key, 1, false, rate).Again > 0, "a later ticket is not queued")
	got = a.queue(key, 1, true, rate) // a smaller cost in the same place
	e.Want(got.Granted, "the first ticket was refused: %+v", got)
	got = b.take(key, 1, rate)
	e.Want(!got.Granted && got.Wait <= 2*rate.Per, "got %+v", got)
}

func fewCalls(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(1, 4))
	p.wait(key, m)
	p.under.count()
	e.All(20, func(int) { _, _ = p.Wait(e.Ctx, key, m, limit.MaxWait(e.Units(4.2))) })
	n := p.under.count()
	e.Want(n <= 60, "%d calls of 20 waiters", n)
}

func ticketOrder(e *env) {
	key, rate := e.key("k"), e.per(1, 1)
	first, second := e.process(), e.process()
	first.granted(key, 1, rate)
	e.Want(first.queue(key, 1, false, rate).Again > 0, "the first ticket is not queued")
	got := second.queue(key, 1, false, rate)
	e.Want(got.Again > 0 && got.Again <= time.Second && got.Wait > rate.Per, "the second ticket: %+v", got)
	var served [2]time.Time
	e.All(2, func(i int) {
		p := []*process{first, second}[i]
		for {
			got := p.queue(key, 1, true, rate)
			if got.Granted {
				served[i] = got.At
				return
			}
			e.Sleep(got.Again)
		}
	})
	e.Want(!served[1].Before(served[0].Add(rate.Per)), "served at %v", served)
}

func tooLate(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(1, 20))
	p.wait(key, m)
	ctx, cancel := context.WithTimeout(e.Ctx, e.Units(15))
	defer cancel()
	start := time.Now()
	for _, call := range []func() error{
		func() error { _, err := p.Wait(e.Ctx, key, m, limit.MaxWait(e.Units(15))); return err },
		func() error { _, err := p.Wait(ctx, key, m); return err },
		func() error { _, err := p.Wait(ctx, key, m, limit.MaxWait(e.Units(40))); return err }, // the earlier end counts
		func() error {
			return p.With(e.Ctx, key, m, func(context.Context, *limit.Permit) error { return nil }, limit.MaxWait(0))
		},
	} {
		err := call()
		var late *limit.LimitedError
		e.Want(errors.As(err, &late), "got %v", err)
		e.Want(late.RetryAfter > e.Units(15) && late.RetryAfter <= e.Units(20) && late.Rate == m.Rates[0], "got %+v", late)
	}
	e.Want(time.Since(start) < e.Units(10), "refused after %v", time.Since(start))
	got := p.take(key, 1, m.Rates...)
	e.Want(got.Wait <= m.Rates[0].Per, "a refused call is still ahead: %+v", got)
}

func tooLateBehind(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(1, 20))
	p.wait(key, m)
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	ahead := e.Async(func() { _, _ = p.Wait(ctx, key, m) })
	e.Soon("a ticket", func() bool { return len(p.state(key).Waiters) == 1 })
	start := time.Now()
	e.Soon("a refusal at once", func() bool { // the answer for the call ahead may be on its way
		_, err := p.Wait(e.Ctx, key, m, limit.MaxWait(e.Units(1)))
		e.Is(err, limit.ErrLimited, "Wait")
		early := time.Since(start) < e.Units(0.5)
		start = time.Now()
		return early
	})
	cancel()
	e.Await(ahead, "the end of the call ahead")
}

func together(e *env) {
	m := limitOf(e.per(40, 60))
	var processes [2]*process
	for i := range processes {
		processes[i] = e.process()
	}
	e.All(40, func(i int) {
		_, err := processes[i%2].Wait(e.Ctx, e.key("k"), m, limit.MaxWait(0))
		e.Want(err == nil, "call %d: %v", i, err)
	})
	_, err := processes[0].Wait(e.Ctx, e.key("k"), m, limit.MaxWait(0))
	e.Is(err, limit.ErrLimited, "one call too many")
}

func cancelled(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(1, 2)
	p.granted(key, 1, rate)
	ctx, cancel := context.WithCancel(e.Ctx)
	over := e.Async(func() {
		_, err := p.Wait(ctx, key, limitOf(rate))
		e.Is(err, context.Canceled, "Wait")
		e.Is(err, limit.ErrLimited, "Wait")
	})
	e.Soon("a ticket", func() bool { return len(p.state(key).Waiters) == 1 })
	cancel()
	e.Await(over, "the end of Wait")
	// A ticket that is not withdrawn dies only after more than a second.
	e.Eventually(900*time.Millisecond, "the ticket is withdrawn", func() bool { return len(p.state(key).Waiters) == 0 })
	e.Want(p.used(key, rate)[0] <= 1, "a cancelled call has consumed")
}

func sameRequest(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(5, 30)
	first := p.queue(key, 2, false, rate)
	e.Want(first.Granted, "got %+v", first)
	for range 3 {
		again := p.queue(key, 2, true, rate)
		e.Want(again.Granted && again.At.Equal(first.At), "got %+v, want the grant of %v", again, first.At)
	}
	e.Want(p.used(key, rate)[0] == 2, "the units were consumed again")
	old := p.request(key, 2, true, rate)
	e.Want(p.queue(key, 1, false, rate).Granted, "the next request was refused")
	p.ask(old) // a late copy
	e.Want(p.used(key, rate)[0] == 3, "a late copy has consumed units")
}

func lostReply(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(5, 30))
	e.Must(e.h.Faults.DropReply(p.under.Driver), "drop a reply")
	p.wait(key, m)
	e.Want(p.used(key, m.Rates...)[0] == 1, "a lost reply consumed twice")
}

func barredRequest(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(5, 30)
	granted := p.request(key, 2, false, rate)
	e.Want(p.ask(granted).Granted, "refused")
	p.withdraw(granted)
	p.withdraw(granted)
	e.Want(p.used(key, rate)[0] == 0, "a withdrawn grant still counts")
	e.Want(!p.ask(granted).Granted && p.used(key, rate)[0] == 0, "a copy of a withdrawn request was granted")
	p.granted(key, 5, rate)
	waiting := p.request(key, 1, false, rate)
	e.Want(p.ask(waiting).Again > 0, "not queued")
	p.withdraw(waiting)
	e.Want(len(p.state(key).Waiters) == 0, "a withdrawn ticket still waits")
}

func (p *process) withdraw(r driver.Request) {
	ctx, cancel := p.env.Bounded()
	defer cancel()
	p.env.Must(p.direct.Withdraw(ctx, r), "the driver's Withdraw of %q", r.Key)
}

// state returns the driver's state of key.
func (p *process) state(key string) driver.State {
	ctx, cancel := p.env.Bounded()
	defer cancel()
	s, err := p.direct.Inspect(ctx, key, nil)
	p.env.Must(err, "the driver's Inspect of %q", key)
	return s
}
