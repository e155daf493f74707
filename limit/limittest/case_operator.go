package limittest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

var operatorCases = []testCase{
	{rule: "W13", claim: "a pause refuses every process until its end", run: pause},
	{rule: "W13", claim: "the longest pause wins and Reset lifts it", run: longestPause},
	{rule: "W14", claim: "the state shows rates, waiters and pause", run: state},
	{rule: "W14", claim: "the next free unit of a smooth limit is spaced", run: spacedState},
	{rule: "W14", claim: "a decision shows when all units are free", run: allFree},
	{rule: "W14", claim: "looking changes nothing", run: looking},
	{rule: "W14", claim: "List has the keys in use, by prefix", run: listed},
	{rule: "W14", claim: "List leaves out keys of which nothing is used", run: unlisted},
	{rule: "W15", claim: "arguments out of bounds never reach the driver", run: bounds},
	{rule: "W15", claim: "odd keys do not collide", run: oddKeys},
	{rule: "W15", claim: "one call decides about all rates", run: oneCall},
	{rule: "W15", claim: "the longest windows work", run: longest},
}

func pause(e *env) {
	a, b, key, m := e.process(), e.process(), e.key("k"), limitOf(e.per(100, 1))
	start := time.Now()
	e.Must(a.Pause(e.Ctx, key, e.Units(1), "told so"), "Pause")
	r := b.allow(key, m)
	e.Want(!r.Allowed && r.RetryAfter > 0 && r.RetryAfter <= e.Units(1) && r.By == limit.Rate{}, "got %+v", r)
	b.wait(key, m)
	e.Want(time.Since(start) >= e.Units(1)*99/100, "granted after %v", time.Since(start)) // the clocks may run at rates that differ a little
}

func longestPause(e *env) {
	a, b, key, m := e.process(), e.process(), e.key("k"), limitOf(e.per(100, 1))
	for _, units := range []float64{30, 10, 20} {
		e.Must(a.Pause(e.Ctx, key, e.Units(units), fmt.Sprint(units)), "Pause")
	}
	r := b.allow(key, m)
	e.Want(!r.Allowed && r.RetryAfter > e.Units(20), "got %+v", r)
	_, err := e.process().Wait(e.Ctx, key, m, limit.MaxWait(0))
	var late *limit.LimitedError
	e.Want(errors.As(err, &late) && late.Paused != nil && late.Paused.Reason == "30" && late.Paused.By.PID != 0, "got %v", err)
	s, err := b.Inspect(e.Ctx, key)
	e.Must(err, "Inspect")
	e.Want(s.Paused != nil && s.Paused.Reason == "30" && s.Paused.By.PID != 0 && s.Paused.Left > e.Units(20) && s.Paused.Left <= e.Units(30), "got %+v", s.Paused)
	e.Must(a.Reset(e.Ctx, key), "Reset")
	e.Want(e.process().allow(key, m).Allowed, "still paused after Reset")
}

func state(e *env) {
	p, other, key := e.process(), e.process(), e.key("k")
	m := limitOf(e.per(3, 20), e.per(50, 60))
	p.allow(key, m, limit.Cost(3))
	e.Want(p.queue(key, 2, false, m.Rates...).Again > 0, "not queued")
	e.Want(other.queue(key, 1, false, m.Rates...).Again > 0, "not queued")
	peek, err := p.Peek(e.Ctx, key, m)
	e.Must(err, "Peek")
	inspect, err := p.Inspect(e.Ctx, key)
	e.Must(err, "Inspect")
	for _, s := range []limit.State{peek, inspect} {
		e.Want(s.Key == key && len(s.Rates) == 2, "got %+v", s)
		tight, wide := s.Rates[0], s.Rates[1]
		e.Want(tight.Rate == m.Rates[0] && tight.Used == 3 && tight.Remaining == 0, "got %+v", tight)
		e.Want(tight.NextFree > e.Units(10) && tight.NextFree <= e.Units(20), "got %+v", tight)
		e.Want(wide.Rate == m.Rates[1] && wide.Used == 3 && wide.Remaining == 47 && wide.NextFree == 0, "got %+v", wide)
		e.Want(len(s.Waiters) == 2 && s.Waiters[0].Cost == 2 && s.Waiters[1].Cost == 1 && s.Waiters[0].PID == 7 && s.Paused == nil, "got %+v", s)
	}
	unused, err := p.Peek(e.Ctx, key, limitOf(e.per(9, 5)))
	e.Must(err, "Peek")
	e.Want(len(unused.Rates) == 1 && unused.Rates[0] == limit.RateState{Rate: e.per(9, 5), Remaining: 9}, "got %+v", unused.Rates)
	debtor := e.key("debt")
	e.Must(p.wait(debtor, m).Settle(e.Ctx, 5), "Settle")
	owing, err := p.Inspect(e.Ctx, debtor)
	e.Must(err, "Inspect")
	e.Want(len(owing.Rates) == 2 && owing.Rates[0].Used == 5 && owing.Rates[0].Remaining == 0, "after a debt: %+v", owing.Rates)
}

func allFree(e *env) {
	p, key, m := e.process(), e.key("k"), limitOf(e.per(3, 20), e.per(50, 60))
	r := p.allow(key, m)
	e.Want(r.By == m.Rates[0] && r.ResetAfter > e.Units(10) && r.ResetAfter <= e.Units(20), "got %+v", r)
	e.Pass(1)
	r = p.allow(key, m, limit.Cost(0))
	e.Want(r.By == m.Rates[0] && r.ResetAfter > e.Units(5) && r.ResetAfter < e.Units(19.5), "after a unit of time: %+v", r)
	odd := limit.Rate{N: 1, Per: 10*time.Millisecond + 999*time.Microsecond}
	a := p.granted(e.key("odd"), 1, odd)
	e.Want(a.Reset == odd.Per, "all units are free after %v, want %v", a.Reset, odd.Per)
}

func spacedState(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(10, 200)
	m := limit.Limit{Rates: []limit.Rate{rate}, Smooth: true}
	states := func() map[string]limit.RateState {
		peek, err := p.Peek(e.Ctx, key, m)
		e.Must(err, "Peek")
		inspect, err := p.Inspect(e.Ctx, key)
		e.Must(err, "Inspect")
		list, err := p.List(e.Ctx, key)
		e.Must(err, "List")
		e.Want(len(peek.Rates) == 1 && len(inspect.Rates) == 1 && len(list) == 1 && len(list[0].Rates) == 1, "got %+v, %+v, %+v", peek, inspect, list)
		return map[string]limit.RateState{"Peek": peek.Rates[0], "Inspect": inspect.Rates[0], "List": list[0].Rates[0]}
	}
	e.Want(p.allow(key, m).Allowed, "the first unit was refused")
	for name, s := range states() {
		e.Want(s.Remaining == 9 && s.NextFree > e.Units(10) && s.NextFree <= e.Units(20), "%s after a spaced grant: %+v", name, s)
	}
	look := p.allow(key, m, limit.Cost(0))
	e.Want(!look.Allowed && look.RetryAfter > e.Units(5) && look.RetryAfter <= e.Units(20), "a look: %+v", look)
	e.Want(p.allow(key, limitOf(rate)).Allowed, "a unit without spacing was refused")
	for name, s := range states() {
		e.Want(s.Remaining == 8 && s.NextFree == 0, "%s after a grant that is not spaced: %+v", name, s)
	}
	r := p.allow(key, m)
	e.Want(!r.Allowed && r.RetryAfter > e.Units(5) && r.RetryAfter <= e.Units(20), "a spaced call after one that is not: %+v", r)
	plain := p.wait(key, limitOf(rate))
	e.Must(plain.Settle(e.Ctx, 2), "Settle")
	for name, s := range states() {
		e.Want(s.Remaining == 6 && s.NextFree == 0, "%s after the debt of a grant that is not spaced: %+v", name, s)
	}
}

func looking(e *env) {
	p, key, rate := e.process(), e.key("k"), e.per(2, 30)
	p.granted(key, 1, rate)
	for range 5 {
		_, err := p.Peek(e.Ctx, key, limitOf(rate))
		e.Must(err, "Peek")
		_, err = p.Inspect(e.Ctx, key)
		e.Must(err, "Inspect")
		_, err = p.List(e.Ctx, e.prefix)
		e.Must(err, "List")
		_, err = p.Inspect(e.Ctx, e.key("another"))
		e.Must(err, "Inspect")
	}
	p.granted(key, 1, rate)
	p.refused(key, 0, 30, 1, rate)
	states, err := p.List(e.Ctx, e.prefix)
	e.Must(err, "List")
	e.Want(len(states) == 1, "looking has made keys: %+v", states)
}

func listed(e *env) {
	p := e.process()
	for _, name := range []string{"b", "a", "c*", "c"} {
		p.granted(e.key(name), 1, e.per(2, 30))
	}
	e.Must(p.Pause(e.Ctx, e.key("p"), e.Units(30), "why"), "Pause")
	p.granted(e.key("w"), 1, e.per(1, 30))
	e.Want(p.queue(e.key("w"), 1, false, e.per(1, 30)).Again > 0, "not queued")
	e.Must(p.Reset(e.Ctx, e.key("w")), "Reset") // its ticket is left
	var keys []string
	states, err := p.List(e.Ctx, e.prefix)
	e.Must(err, "List")
	for _, s := range states {
		keys = append(keys, strings.TrimPrefix(s.Key, e.prefix+":"))
	}
	e.Want(strings.Join(keys, " ") == "a b c c* p w", "got %q", keys)
	e.Want(len(states[5].Waiters) == 1, "the key with a waiter alone: %+v", states[5])
	states, err = p.List(e.Ctx, e.key("c*"))
	e.Must(err, "List")
	e.Want(len(states) == 1, "a prefix is a pattern: %+v", states)
	states, err = p.List(e.Ctx, e.prefix[1:])
	e.Must(err, "List")
	e.Want(len(states) == 0, "a prefix is a part: %+v", states)
}

func unlisted(e *env) {
	p, m := e.process(), limitOf(e.per(2, 30))
	p.wait(e.key("reset"), m)
	e.Must(p.Reset(e.Ctx, e.key("reset")), "Reset")
	e.Must(p.wait(e.key("cancelled"), m).Cancel(e.Ctx), "Cancel")
	states, err := p.List(e.Ctx, e.prefix)
	e.Must(err, "List")
	e.Want(len(states) == 0, "listed: %+v", states)
	for _, name := range []string{"reset", "cancelled"} {
		s, err := p.Inspect(e.Ctx, e.key(name))
		e.Must(err, "Inspect")
		e.Want(len(s.Rates) == 0, "Inspect of the key %s: %+v", name, s.Rates)
	}
}

func bounds(e *env) {
	p, good := e.process(), limitOf(e.per(2, 1))
	p.under.count()
	for name, err := range map[string]error{
		"an empty key": second(p.Allow(e.Ctx, "", good)),
		"a space":      second(p.Allow(e.Ctx, "a b", good)),
		"no UTF-8":     second(p.Allow(e.Ctx, "\xff", good)),
		"no rate":      second(p.Allow(e.Ctx, "k", limit.Limit{})),
		"N":            second(p.Allow(e.Ctx, "k", limitOf(limit.Rate{N: 1_000_000_001, Per: time.Second}))),
		"Per":          second(p.Allow(e.Ctx, "k", limitOf(limit.Rate{N: 1, Per: 10*time.Millisecond - 1}))),
		"a long Per":   second(p.Allow(e.Ctx, "k", limitOf(limit.Rate{N: 1, Per: 31*24*time.Hour + 1}))),
		"nine rates":   second(p.Allow(e.Ctx, "k", limitOf(slices.Repeat(good.Rates, 9)...))),
		"Slack":        second(p.Allow(e.Ctx, "k", limit.Limit{Rates: good.Rates, Slack: -1})),
		"a long Slack": second(p.Allow(e.Ctx, "k", limit.Limit{Rates: good.Rates, Slack: limit.MaxSlack + 1})),
		"Concurrent":   second(p.Wait(e.Ctx, "k", limit.Limit{Rates: good.Rates, Concurrent: lock.MaxSlots + 1})),
		"Outage":       second(p.Allow(e.Ctx, "k", limit.Limit{Rates: good.Rates, Outage: limit.Share(1.5)})),
		"Cost":         second(p.Allow(e.Ctx, "k", good, limit.Cost(-1))),
		"Pause":        p.Pause(e.Ctx, "k", 0, "why"),
		"a long Pause": p.Pause(e.Ctx, "k", limit.MaxPause+1, "why"),
		"no reason":    p.Pause(e.Ctx, "k", time.Second, ""),
		"a reason":     p.Pause(e.Ctx, "k", time.Second, strings.Repeat("x", limit.MaxReason+1)),
		"With":         p.With(e.Ctx, "k", good, nil),
	} {
		e.Is(err, limit.ErrInvalid, "%s", name)
	}
	concurrent := limit.Limit{Rates: good.Rates, Concurrent: 1}
	e.Is(second(p.Wait(e.Ctx, "k", concurrent)), limit.ErrUnsupported, "Concurrent without a Locker")
	e.Is(second(p.Allow(e.Ctx, "k", concurrent)), limit.ErrUnsupported, "Allow with Concurrent")
	e.Want(p.under.count() == 0, "the driver was called")
}

func second[T any](_ T, err error) error { return err }

func oddKeys(e *env) {
	p, rate := e.process(), e.per(1, 30)
	var keys []string
	for _, name := range []string{"{}", "a}{b", "{a", "a}", ":", "*", "%7B", "k", "k:", "k:rate", "é", strings.Repeat("x", 400)} {
		keys = append(keys, e.key(name))
		p.granted(e.key(name), 1, rate)
	}
	for _, key := range keys {
		e.Want(p.used(key, rate)[0] == 1, "%q: %v units are used, want 1", key, p.used(key, rate))
		p.refused(key, 0, 30, 1, rate)
	}
}

func oneCall(e *env) {
	p, key := e.process(), e.key("k")
	var rates []limit.Rate
	for i := range limit.MaxRates {
		rates = append(rates, e.per(100, float64(20+i)))
	}
	p.under.count()
	e.Want(p.allow(key, limitOf(rates...)).Allowed, "refused")
	e.Want(p.under.count() == 1, "more than one call of the driver")
	e.Must(p.With(e.Ctx, key, limitOf(rates...), func(context.Context, *limit.Permit) error { return nil }), "With")
	e.Want(p.under.count() == 1, "more than one call of the driver")
	for _, used := range p.used(key, rates...) {
		e.Want(used == 2, "%d units are used, want 2", used)
	}
}

func longest(e *env) {
	p, key := e.process(), e.key("k")
	most := limit.Rate{N: limit.MaxN, Per: limit.MaxPer}
	p.granted(key, limit.MaxN, most)
	a := p.take(key, 1, most)
	e.Want(!a.Granted && a.Wait > limit.MaxPer*99/100, "got %+v", a)
	p.giveBack(key, time.Now().Add(-limit.MaxPer*2), 1, most) // of a grant that is not there
	e.Want(!p.take(key, limit.MaxN, most).Granted, "granted twice")
	e.Must(p.Pause(e.Ctx, key, limit.MaxPause, "why"), "Pause")
	a = p.take(key, 1, most)
	e.Want(a.Paused != nil && a.Paused.Left > limit.MaxPause*99/100, "got %+v", a)
}
