package limittest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

var slotCases = []testCase{
	{rule: "W16", claim: "no more than Concurrent work at once", run: concurrent, slots: true},
	{rule: "W16", claim: "the slot is given back if the rate refuses", run: slotBack, slots: true},
	{rule: "W16", claim: "a busy slot consumes no units", run: busySlot, slots: true},
	{rule: "W16", claim: "With keeps its slot until its function has returned, also after the end of its context", run: slotUntilReturn, slots: true, fake: true},
}

// withSlots returns a process whose Limiter has a Locker.
func (e *env) withSlots() (*process, *lock.Locker) {
	locker, err := e.h.Locker()
	e.Must(err, "open a Locker")
	e.AtEnd(func() { _ = locker.Close(context.Background()) })
	p := e.process()
	l, err := limit.New(e.driver(), limit.Config{Locker: locker})
	e.Must(err, "new Limiter")
	e.AtEnd(func() { _ = l.Close(context.Background()) })
	p.Limiter = l
	return p, locker
}

func concurrent(e *env) {
	p, locker := e.withSlots()
	m := limit.Limit{Rates: []limit.Rate{e.per(100, 1)}, Concurrent: 2}
	var inside, most atomic.Int32
	e.All(8, func(int) {
		err := p.With(e.Ctx, e.key("k"), m, func(context.Context, *limit.Permit) error {
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			e.Pass(0.1)
			inside.Add(-1)
			return nil
		})
		e.Must(err, "With")
	})
	e.Want(most.Load() <= 2, "%d at once", most.Load())
	e.Want(len(locker.Held()) == 0, "slots are left: %q", locker.Held())
}

func slotBack(e *env) {
	p, locker := e.withSlots()
	m := limit.Limit{Rates: []limit.Rate{e.per(1, 60)}, Concurrent: 1}
	p.granted(e.key("k"), 1, m.Rates...)
	_, err := p.Wait(e.Ctx, e.key("k"), m, limit.MaxWait(e.Units(30)))
	e.Is(err, limit.ErrLimited, "Wait")
	e.Want(len(locker.Held()) == 0, "slots are left: %q", locker.Held())
}

func busySlot(e *env) {
	p, _ := e.withSlots()
	key, m := e.key("k"), limit.Limit{Rates: []limit.Rate{e.per(10, 60)}, Concurrent: 1}
	held := p.wait(key, m)
	_, err := p.Wait(e.Ctx, key, m, limit.MaxWait(e.Units(0.2)))
	e.Is(err, limit.ErrLimited, "Wait")
	e.Is(err, lock.ErrNotAcquired, "Wait")
	e.Want(p.used(key, m.Rates...)[0] == 1, "a busy slot has consumed units")
	e.Must(held.Cancel(e.Ctx), "Cancel")
	e.Must(p.wait(key, m).Cancel(e.Ctx), "Cancel")
}

// slotUntilReturn works for longer after the end of the context than a Locker leaves a
// lease of Acquire to its holder then.
func slotUntilReturn(e *env) {
	p, _ := e.withSlots()
	key, m := e.key("k"), limit.Limit{Rates: []limit.Rate{e.per(10, 60)}, Concurrent: 1}
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	e.Must(p.With(ctx, key, m, func(ctx context.Context, _ *limit.Permit) error {
		cancel()
		e.Await(ctx.Done(), "the context of the function ends")
		e.Sleep(time.Minute)
		_, err := p.Wait(e.Ctx, key, m, limit.MaxWait(e.Units(0.2)))
		e.Is(err, lock.ErrNotAcquired, "Wait beside the function")
		return nil
	}), "With")
	e.Must(p.wait(key, m).Cancel(e.Ctx), "Cancel")
}
