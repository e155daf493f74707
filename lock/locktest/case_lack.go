package locktest

import (
	"context"

	"github.com/megaframework/mega/lock"
)

// lackCases test drivers that do not keep a rule: they must refuse the missing
// feature and not implement it in part.
var lackCases = []testCase{
	{rule: "L15", claim: "a driver without pools refuses them", lacks: "L15", run: refusesPools},
	{rule: "L7", claim: "a driver without a queue refuses FIFO", lacks: "L7", run: refusesFIFO},
	{rule: "L7", claim: "a driver without a queue still serves waiters", lacks: "L7", run: servesAnyhow},
}

func (e *env) unsupported(opt lock.Option) {
	p := e.process()
	lease, err := p.Acquire(e.Ctx, e.key("k"), opt)
	if err == nil {
		e.releases(lease)
	}
	e.Is(err, lock.ErrUnsupported, "acquire")
	_, err = p.TryAcquire(e.Ctx, e.key("k"), opt)
	e.Is(err, lock.ErrUnsupported, "try")
	p.free(e.key("k"))
}

func refusesPools(e *env) { e.unsupported(lock.Slots(2)) }

func refusesFIFO(e *env) { e.unsupported(lock.FIFO()) }

func servesAnyhow(e *env) {
	processes := e.processes(3)
	e.All(6, func(i int) {
		for range 3 {
			e.Must(processes[i%3].With(e.Ctx, e.key("k"), func(context.Context) error { return nil }), "with")
		}
	})
}
