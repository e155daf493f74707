package boot

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// primary is an OnPrimary function of this process. Only the goroutine of the
// boot uses its fields.
type primary struct {
	booting *booting
	name    string // of its turn among the workers; unique in the program
	does    hook
	key     string      // of its lock; empty if the scope of locks is not the fleet
	mine    bool        // whether this process runs it
	lease   *lock.Lease // nil without a key
}

// primary returns the steps of an OnPrimary function. One process of each node
// runs it. If the scope of locks is the fleet, the nodes run it one after the
// other. The waits for other workers and for other nodes do not use up the
// function's budget.
func (b *booting) primary(h plan.Hook, does hook, from []failure.Fact) (steps []step) {
	p := &primary{booting: b, name: strconv.Itoa(len(b.steps.primary)) + " " + does.name, does: does, mine: b.line == nil}
	shown := plan.Primary{Name: does.name, Scope: driver.Node.String()}
	if b.line != nil {
		steps = append(steps, step{start: hook{name: "turn to " + does.name, budget: longBudget, run: p.turn}})
	}
	if b.locker.Info().Scope == driver.Fleet {
		p.key = h.LockKey(b.plan.Config, "") // E5
		shown.Scope, shown.Lock = driver.Fleet.String(), p.key
		steps = append(steps, step{start: hook{name: "lock of " + does.name, budget: longBudget, run: p.acquire}, from: from})
	}
	b.report.Primary = append(b.report.Primary, shown)
	does.run = p.run
	return append(steps, step{start: does, from: from})
}

// turn waits until a worker of this node has run the function, or until this
// worker has to run it.
func (p *primary) turn(ctx context.Context) (err error) {
	p.mine, err = p.booting.line.Turn(ctx, p.name)
	return err
}

// acquire waits for the other nodes. The lease uses the context of the boot,
// since ctx ends with this step.
func (p *primary) acquire(context.Context) (err error) {
	if !p.mine {
		return nil
	}
	b := p.booting
	p.lease, err = b.locker.TryAcquire(b.ctx, p.key)
	if busy, ok := errors.AsType[*lock.NotAcquiredError](err); ok {
		b.log.Info("waiting for another node", "hook", p.does.name, "lock", p.key, "holders", fmt.Sprint(busy.Holders))
		p.lease, err = b.locker.Acquire(b.ctx, p.key, lock.Wait(lock.Forever))
	}
	return err
}

// run runs the function if this process has to.
func (p *primary) run(ctx context.Context) error {
	if !p.mine {
		return nil
	}
	if err := p.locked(ctx); err != nil {
		return err
	}
	if p.booting.line == nil {
		return nil
	}
	return p.booting.line.Done(ctx, p.name)
}

// locked runs the function under its lock. The loss of the lease ends the
// function's context and is an error, even if the function returned nil.
func (p *primary) locked(ctx context.Context) error {
	if p.lease == nil {
		return p.does.run(ctx)
	}
	held := p.lease.Context()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
	err := await(underLease{ctx, held}, p.does.run)
	if errors.Is(err, errStuck) && held.Err() == nil {
		return err // the function still runs: the lease is left to its TTL
	}
	if lost := p.lease.Release(); errors.Is(lost, lock.ErrLost) {
		return errors.Join(lost, err)
	}
	return err
}

// underLease is a context with its own values and the values of a lease's
// context.
type underLease struct {
	context.Context
	lease context.Context
}

func (c underLease) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.lease.Value(key)
}

// elected returns the background function of a Lead or Every: it campaigns for
// the lock of h until the program stops, and then hands over at once (E3). A
// panic of the function counts as an error, so that it does not end the program. So
// does runtime.Goexit, which ends the goroutine of the function alone.
func (b *booting) elected(h plan.Hook, does hook, host *request.Host) hook {
	key := h.LockKey(b.plan.Config, host.App.Name)
	b.report.Elected = append(b.report.Elected, plan.Elected{
		Name: h.Name, Every: h.Every, Scope: b.locker.Info().Scope.String(), Lock: key,
	})
	run := does.run
	does.run = func(ctx context.Context) error {
		c, _ := megactx.From(host.Context(ctx)) // the holder names the app
		var last error                          // of the run that the shutdown has ended
		work := func(held context.Context) error {
			done := make(chan error, 1)
			go concluded(held, run, func(err error) { done <- err })
			err := <-done
			if ctx.Err() != nil {
				last = err
			}
			return err
		}
		if h.Kind == plan.KindEvery {
			var opts []lock.Option
			if h.AtLeastOnce {
				opts = append(opts, lock.AtLeastOnce()) // O3
			}
			return b.locker.Every(c, key, h.Every, work, opts...)
		}
		err := b.locker.Lead(c, key, work)
		if ctx.Err() != nil {
			return last // no retry reports it, and Lead joins it to the end of ctx, which is no failure
		}
		return err
	}
	return does
}
