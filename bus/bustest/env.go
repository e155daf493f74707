package bustest

import (
	"context"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/suite"
)

// env is the environment of a case. It opens processes.
type env struct {
	*suite.Env
	h    Harness
	info driver.Info
	away bool // the backend, see down
}

// receive returns what comes through c, which should happen at once.
func receive[T any](e *env, c <-chan T, what string) T {
	timer := time.NewTimer(e.Patience())
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		e.Fail("not within %v: %s", e.Patience(), what)
	}
	panic("unreachable")
}

// listen blocks a handler until its context ends, at the latest when the case
// is over.
func (e *env) listen(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-e.Ctx.Done():
	}
}

// breathe pauses a loop that goes on until something happens, so that others
// run. On fake time the pause is as long as in Soon: a shorter one multiplies
// the rounds until a Soon gives up, to half a million.
func (e *env) breathe() {
	if e.h.FakeTime {
		e.Sleep(e.Unit / 64)
		return
	}
	e.Sleep(e.Unit / 10_000)
}

// within is a context that lasts n units.
func (e *env) within(n float64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.Ctx, e.Units(n))
}

// took fails the case unless the time since then is between exactly and exactly
// plus slack units. On fake time it has to be exactly.
func (e *env) took(since time.Time, exactly time.Duration, slack float64, what string) {
	d := time.Since(since)
	if e.h.FakeTime {
		slack = 0
	}
	e.Want(d >= exactly && d <= exactly+e.Units(slack), "%s took %v, want %v", what, d, exactly)
}

// remote reports whether there may be several processes.
func (e *env) remote() bool { return e.info.Scope > driver.Process }
