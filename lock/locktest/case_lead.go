package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/megaframework/mega/lock"
)

var leadCases = []testCase{
	{rule: "E1", claim: "one process leads at a time, and fences grow with the terms", run: oneLeader},
	{rule: "E1", claim: "Slots is refused before the driver is called", run: poolIsNotLed},
	{rule: "E2", claim: "a campaign goes on after a loss, whatever fn returned", run: lossCampaignsOn},
	{rule: "E2", claim: "an error releases the key and is retried after a pause", run: errorPauses},
	{rule: "E2", claim: "the pauses grow to a minute, and a term of a minute starts them anew", fake: true, run: pausesGrow},
	{rule: "E2", claim: "the wait of a follower is no term", fake: true, run: waitIsNoTerm},
	{rule: "E3", claim: "the end of the leader's context hands over at once", run: leaderLeaves},
	{rule: "E3", claim: "the campaign of a leader whose context has ended ends with the context's error", run: leaderIsCancelled},
	{rule: "E4", claim: "followers do not poll", also: []string{"L9"}, run: followersAreIdle},
}

func oneLeader(e *env) {
	processes := e.processes(3)
	var mu sync.Mutex // guards the variables below
	var terms, leaders int
	var last uint64
	e.All(len(processes), func(i int) {
		err := processes[i].Lead(e.Ctx, e.key("k"), func(ctx context.Context) error {
			lease, _ := lock.LeaseFrom(ctx)
			mu.Lock()
			if leaders != 0 || lease.Fence() <= last {
				e.Report("term %d with fence %d after %d, beside %d leaders", terms, lease.Fence(), last, leaders)
			}
			leaders++
			last = lease.Fence()
			terms++
			mu.Unlock()
			e.Pass(0.1) // ends the case when its time is over
			mu.Lock()
			leaders--
			mu.Unlock()
			return nil
		}, e.ttl(100))
		e.Must(err, "lead")
	})
	e.Want(terms == len(processes), "%d campaigns had %d terms", len(processes), terms)
}

func poolIsNotLed(e *env) {
	p := e.process()
	for name, opt := range map[string]lock.Option{
		"Slots(2)": lock.Slots(2), "Slots(1)": lock.Slots(1), "FixedSlots(2)": lock.FixedSlots(2), "FixedSlots(1)": lock.FixedSlots(1),
	} {
		err := p.Lead(e.Ctx, e.key("k"), func(context.Context) error {
			e.Report("a term has run with %s", name)
			return nil
		}, opt)
		e.Is(err, lock.ErrInvalid, "lead with %s", name)
	}
	e.Want(p.plan.Calls(Any) == 0, "%d calls were made", p.plan.Calls(Any))
}

func lossCampaignsOn(e *env) {
	a, b := e.process(), e.process()
	terms := 0
	err := a.Lead(e.Ctx, e.key("k"), func(ctx context.Context) error {
		if terms++; terms > 2 {
			return nil
		}
		_, err := b.ForceRelease(e.Ctx, e.key("k"), "it hangs")
		e.Must(err, "force")
		e.Await(ctx.Done(), "the lease ends")
		if terms == 1 {
			return nil
		}
		return ctx.Err()
	})
	e.Must(err, "lead")
	e.Want(terms == 3, "the campaign had %d terms, want 3", terms)
}

func errorPauses(e *env) {
	a, b := e.process(), e.process()
	failed := errors.New("failed")
	terms := 0
	over := e.Async(func() {
		e.Must(a.Lead(e.Ctx, e.key("k"), func(context.Context) error {
			if terms++; terms == 1 {
				return failed
			}
			return nil
		}, e.ttl(100)), "lead")
	})
	var pauses []time.Duration
	e.Soon("the error is reported", func() bool {
		pauses = nil
		for _, r := range eventsOf[lock.Retrying](a) {
			if r.Key == e.key("k") && errors.Is(r.Err, failed) {
				pauses = append(pauses, r.Pause)
			}
		}
		return len(pauses) == 1
	})
	e.releases(b.acquire(e.key("k"), e.ttl(100)))
	e.Await(over, "the second term is over")
	e.Want(!e.h.FakeTime || pauses[0] > time.Second/2 && pauses[0] < 2*time.Second, "the first pause is %v, want about a second", pauses[0])
}

// paused fails the case unless the pauses of the campaign of p were about as
// long as want.
func (p *process) paused(want ...time.Duration) {
	var all []time.Duration
	for _, r := range eventsOf[lock.Retrying](p) {
		all = append(all, r.Pause)
	}
	p.e.Want(len(all) == len(want), "the pauses are %v, want about %v", all, want)
	for i, w := range want {
		p.e.Want(w*2/3 < all[i] && all[i] < w*4/3, "the pauses are %v, want about %v", all, want)
	}
}

func pausesGrow(e *env) {
	p := e.process()
	terms := 0
	var over time.Time
	var gaps []time.Duration
	e.Must(p.Lead(e.Ctx, e.key("k"), func(context.Context) error {
		if terms++; terms > 1 {
			gaps = append(gaps, time.Since(over))
		}
		switch terms {
		case 9:
			e.Sleep(time.Minute)
		case 10:
			return nil
		}
		over = time.Now()
		return errors.New("failed")
	}), "lead")
	p.paused(time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 32*time.Second, time.Minute, time.Minute, time.Second)
	for i, r := range eventsOf[lock.Retrying](p) {
		e.Want(gaps[i] >= r.Pause && gaps[i] < r.Pause+time.Second, "a pause of %v was reported and lasted %v", r.Pause, gaps[i])
	}
}

// waitIsNoTerm has another process hold the key, between two short terms, for
// longer than a term that starts the pauses anew.
func waitIsNoTerm(e *env) {
	a, b := e.process(), e.process()
	terms := 0
	e.Must(a.Lead(e.Ctx, e.key("k"), func(context.Context) error {
		switch terms++; terms {
		case 2:
			next := b.queue(e.key("k"), "next")
			e.Async(func() {
				lease := next.lease()
				e.Sleep(2 * time.Minute)
				e.releases(lease)
			})
		case 4:
			return nil
		}
		return errors.New("failed")
	}), "lead")
	a.paused(time.Second, 2*time.Second, 4*time.Second)
}

func leaderLeaves(e *env) {
	a, b := e.process(), e.process()
	ctx, leave := context.WithCancel(e.Ctx)
	defer leave()
	leads := make(chan struct{})
	over := e.Async(func() {
		err := a.Lead(ctx, e.key("k"), func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			return nil
		}, lock.TTL(time.Hour))
		e.Must(err, "lead")
	})
	e.Await(leads, "the first process leads")
	next := e.Async(func() {
		e.Must(b.Lead(e.Ctx, e.key("k"), succeed, lock.TTL(time.Hour), lock.Label("next")), "lead")
	})
	b.isQueued(e.key("k"), "next")
	leave()
	e.Await(over, "the first campaign has ended")
	e.Await(next, "the second process has led")
}

// leaderIsCancelled ends the contexts of leaders whose functions fail, lose their
// lease or succeed after that.
func leaderIsCancelled(e *env) {
	p, mine, gone := e.process(), errors.New("half done"), errors.New("the program ends")
	for name, end := range map[string]func() error{
		"fails":    func() error { return mine },
		"succeeds": func() error { return nil },
		"loses its lease": func() error {
			_, err := p.ForceRelease(e.Ctx, e.key("k"), "it hangs")
			return err
		},
	} {
		ctx, leave := context.WithCancelCause(e.Ctx)
		terms := 0
		err := p.Lead(ctx, e.key("k"), func(ctx context.Context) error {
			terms++
			leave(gone)
			e.Await(ctx.Done(), "the context of fn ends")
			return end()
		}, lock.TTL(time.Hour))
		e.Want(terms == 1, "a leader that %s had %d terms", name, terms)
		if name == "succeeds" {
			e.Must(err, "the campaign of a leader that %s", name) // E2
		} else {
			e.Is(err, context.Canceled, "the campaign of a leader that %s", name)
			e.Is(err, gone, "the campaign of a leader that %s", name)
		}
		p.free(e.key("k"))
		e.Want(len(eventsOf[lock.Retrying](p)) == 0, "a leader that %s is retried", name)
	}
}

func followersAreIdle(e *env) {
	a, b := e.process(), e.process()
	ctx, leave := context.WithCancel(e.Ctx)
	defer leave()
	holder := a.acquire(e.key("k"), lock.TTL(time.Hour))
	var over []<-chan struct{}
	for i := range 20 {
		label := fmt.Sprint(i)
		over = append(over, e.Async(func() {
			e.Is(b.Lead(ctx, e.key("k"), succeed, lock.Label(label)), context.Canceled, "lead")
		}))
		b.isQueued(e.key("k"), label)
	}
	before := b.plan.Calls(Acquire)
	e.Pass(8)
	more := b.plan.Calls(Acquire) - before
	e.Want(more <= 1, "20 followers have made %d requests", more)
	leave()
	for _, c := range over {
		e.Await(c, "the campaign has ended")
	}
	e.releases(holder)
}
