package cluster

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// newClaim returns a Lock without a hub, with a claim that was requested at asked.
func newClaim(t *testing.T, asked time.Time) (*Lock, *claim) {
	t.Helper()
	x := newLock(&Node{why: errNoHub})
	t.Cleanup(func() { x.runs.Close() })
	c, err := x.add(&driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1})
	must(t, err)
	c.asked = asked
	return x, c
}

// near reports whether two instants are the same but for the precision of the clocks.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < time.Millisecond }

// A lease that the hub grants at once counts from before its request was sent, as with
// every driver, and one after a wait from its grant. A hub cannot make it longer (L1, L4).
func TestDeadlineOfAGrant(t *testing.T) {
	asked := driver.Now().Add(-10 * time.Second)
	local := driver.Deadline(asked, time.Minute)
	for name, test := range map[string]struct {
		hub    time.Time
		queued bool
		want   time.Time
	}{
		"later at the hub":         {local.Add(5 * time.Second), false, local},
		"earlier at the hub":       {local.Add(-5 * time.Second), false, local.Add(-5 * time.Second)},
		"after a wait, at the hub": {local.Add(5 * time.Second), true, local.Add(5 * time.Second)},
	} {
		x, c := newClaim(t, asked)
		f := protocol.Begin(protocol.LockAnswer)
		protocol.AddGrant(f, &driver.Grant{Fence: 7, Deadline: test.hub, Queued: test.queued}, x.clock)
		d := protocol.NewDecoder(f.Body())
		x.have(c, &d)
		if c.state != claimHeld || c.grant.Fence != 7 || !near(c.grant.Deadline, test.want) {
			t.Errorf("%s: the deadline is %v after the request, want %v", name, c.grant.Deadline.Sub(asked), test.want.Sub(asked))
		}
	}
}

// A grant that arrives when its caller has given up, or twice, changes nothing.
func TestGrantForAClaimThatIsOver(t *testing.T) {
	for _, state := range []claimState{claimHeld, claimRefused} {
		x, c := newClaim(t, driver.Now())
		c.state, c.grant.Fence = state, 3
		f := protocol.Begin(protocol.LockAnswer)
		protocol.AddGrant(f, &driver.Grant{Fence: 7, Deadline: driver.Now()}, x.clock)
		d := protocol.NewDecoder(f.Body())
		x.have(c, &d)
		if c.state != state || c.grant.Fence != 3 {
			t.Errorf("state %d with fence %d, want %d with fence 3", c.state, c.grant.Fence, state)
		}
	}
}

// A renewal counts from before it was sent. The claim has what the next hub must know:
// the deadline, and the TTL of the latest Extend, whichever answer comes last (L1, L12).
func TestDeadlineOfARenewal(t *testing.T) {
	sent := driver.Now().Add(-10 * time.Second)
	for name, test := range map[string]struct {
		grant driver.Grant
		hub   time.Time
		want  time.Time // the deadline
		ttl   time.Duration
		rev   uint64
	}{
		"later at the hub":   {driver.Grant{TTL: time.Hour, Rev: 2}, sent.Add(time.Hour), driver.Deadline(sent, time.Hour), time.Hour, 2},
		"earlier at the hub": {driver.Grant{TTL: time.Hour, Rev: 2}, sent.Add(20 * time.Second), sent.Add(20 * time.Second), time.Hour, 2},
		"of an older TTL":    {driver.Grant{TTL: time.Hour, Rev: 0}, sent.Add(20 * time.Second), sent.Add(20 * time.Second), time.Minute, 1},
		"without a renewal":  {driver.Grant{TTL: time.Hour, Rev: 2, NoRenew: true}, sent.Add(3 * time.Hour), sent.Add(3 * time.Hour), time.Minute, 1},
	} {
		x, c := newClaim(t, sent)
		c.state, c.grant = claimHeld, driver.Grant{Key: "k", Token: "token", TTL: time.Minute, Rev: 1, Deadline: sent.Add(30 * time.Second)}
		test.grant.Key, test.grant.Token = "k", "token"
		q := &question{since: sent, grants: []driver.Grant{test.grant}, renewals: make([]driver.Renewal, 1)}
		f := protocol.Begin(protocol.LockAnswer).Byte(protocol.VerdictDone).Int(x.clock.Nanos(test.hub))
		d := protocol.NewDecoder(f.Body())
		x.takeRenewals(q, &d)
		r := q.renewals[0]
		if r.Err != nil || !near(r.Deadline, test.want) || c.grant.Deadline != r.Deadline {
			t.Errorf("%s: the deadline is %v after the request, want %v; the claim has %v, %v", name, r.Deadline.Sub(sent), test.want.Sub(sent), c.grant.Deadline.Sub(sent), r.Err)
		}
		if c.grant.TTL != test.ttl || c.grant.Rev != test.rev {
			t.Errorf("%s: the claim has the TTL %v of number %d, want %v of %d", name, c.grant.TTL, c.grant.Rev, test.ttl, test.rev)
		}
	}
}

// A question that is repeated at the next hub counts from there: a lease would otherwise
// end although that hub has renewed it (L12).
func TestRepeatedQuestionCountsFromItsLastAttempt(t *testing.T) {
	x, c := newClaim(t, driver.Now())
	silentHub(t, x)
	q := newQuestion("k")
	defer q.free()
	q.claim = c
	for range 2 {
		now := driver.Now()
		_, err := x.enlist(q)
		must(t, err)
		if q.since.Before(now) || c.asked.Before(now) {
			t.Errorf("it counts from %v before it is sent, its claim from %v", now.Sub(q.since), now.Sub(c.asked))
		}
	}
}

// silentHub connects x to a hub that reads and answers nothing. It returns the hub's end.
func silentHub(t *testing.T, x *Lock) (there net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	line := protocol.NewLine(here)
	t.Cleanup(func() { line.Close(); _ = there.Close() })
	x.mu.Lock()
	defer x.mu.Unlock()
	x.change(line)
	return there
}

// asks waits until x has one question, which it has not asked before, and returns its
// number. The question may not be sent yet.
func asks(t *testing.T, x *Lock, before uint64) (number uint64) {
	t.Helper()
	eventually(t, "the question", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for number = range x.asked {
		}
		return number > before
	})
	return number
}

// A request that a hub has not answered ends with the Locker (L17).
func TestCloseEndsARequestWithoutAnAnswer(t *testing.T) {
	x, _ := newClaim(t, driver.Now())
	silentHub(t, x)
	ended := make(chan error, 1)
	go func() {
		_, err := x.Acquire(context.WithoutCancel(t.Context()), driver.Request{Key: "other", Token: "other", TTL: time.Minute, Slots: 1, Fences: 1})
		ended <- err
	}()
	asks(t, x, 0)
	must(t, x.Close(t.Context()))
	if err := <-ended; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}

// A list of which the earlier hub has sent a part is the next hub's alone.
func TestListThatIsRepeatedHasEachKeyOnce(t *testing.T) {
	x, _ := newClaim(t, driver.Now())
	hub := silentHub(t, x)
	listed := make(chan []driver.State, 1)
	go func() {
		states, err := x.List(context.WithoutCancel(t.Context()), "")
		if err != nil {
			t.Error(err)
		}
		listed <- states
	}()
	answer := func(number uint64, parts int) {
		_, err := hub.Read(make([]byte, 1)) // the question is sent
		must(t, err)
		for _, f := range protocol.AddStates(number, []driver.State{{Key: "a"}, {Key: "b"}}, false, 1<<10)[:parts] {
			d := protocol.NewDecoder(f.Body())
			x.answer(&d)
		}
	}
	first := asks(t, x, 0)
	answer(first, 1)
	x.disconnected(nil)
	hub = silentHub(t, x)
	answer(asks(t, x, first), 2)
	if states := <-listed; len(states) != 2 {
		t.Errorf("%d states, want 2: %+v", len(states), states)
	}
}

// The next hub grants nothing before the leases that a process leaves behind have
// expired at the hub, which is later than their deadlines here (L1).
func TestLatestExpiryOfTheLeasesThatAreLeftBehind(t *testing.T) {
	x, c := newClaim(t, driver.Now())
	if until := x.latestExpiry(); until != 0 {
		t.Errorf("without a lease: %d", until)
	}
	end := driver.Now().Add(time.Minute)
	c.state, c.grant = claimHeld, driver.Grant{Key: "k", Token: "token", TTL: time.Minute, Deadline: end.Add(-driver.Margin(time.Minute))}
	if until := x.latestExpiry(); until < x.clock.Nanos(end)+protocol.MaxSkew-int64(time.Microsecond) {
		t.Errorf("%v before the end of the lease", time.Duration(x.clock.Nanos(end)+protocol.MaxSkew-until))
	}
	c.rests = true
	if until := x.latestExpiry(); until != 0 {
		t.Errorf("in a cooldown: %d", until)
	}
}

// The request that a process repeats at the next hub is the one from which its grant
// counts, and its place in the queue is the first one's (L7).
func TestReportOfAWaiterCountsFromTheReport(t *testing.T) {
	asked := driver.Now().Add(-time.Hour)
	x, c := newClaim(t, asked)
	c.state, c.first = claimQueued, 42
	now := driver.Now()
	frames := x.report()
	if c.asked.Before(now) {
		t.Errorf("a grant counts from %v before the report", now.Sub(c.asked))
	}
	if len(frames) != 2 || frames[0].Type() != protocol.LockAsk || frames[1].Type() != protocol.LockReported {
		t.Fatalf("%d frames", len(frames))
	}
	d := protocol.NewDecoder(frames[0].Body())
	if number, first := d.Uint(), d.Int(); number != 0 || first != 42 {
		t.Errorf("request %d with the time %d, want 0 with 42", number, first)
	}
}

// A lease that was forced, or that a hub did not renew because it has expired, is not
// reported to the next hub: that one would take its key again (L3).
func TestALeaseThatIsLostIsNotReported(t *testing.T) {
	lost := &driver.LostError{Key: "k", Cause: driver.Forced, Reason: "as asked"}
	push := func(x *Lock) {
		d := protocol.NewDecoder(protocol.AddError(protocol.Begin(protocol.LockLost).String("token"), lost).Body())
		x.lose(&d)
	}
	grant := func(x *Lock) *protocol.Decoder {
		f := protocol.Begin(protocol.LockGranted).String("token")
		protocol.AddGrant(f, &driver.Grant{Fence: 7, Deadline: driver.Now().Add(time.Minute)}, x.clock)
		d := protocol.NewDecoder(f.Body())
		return &d
	}
	for name, lose := range map[string]func(x *Lock, c *claim){
		"by a push": func(x *Lock, _ *claim) { push(x) },
		"by a push before the answer": func(x *Lock, c *claim) {
			c.state = claimAsked
			push(x)
			d := grant(x)
			_ = d.Bytes()
			x.have(c, d)
		},
		"by a push before its turn is reported": func(x *Lock, c *claim) {
			c.state = claimQueued
			push(x)
			x.granted(grant(x))
		},
		"by a renewal": func(x *Lock, c *claim) {
			q := &question{since: driver.Now(), grants: []driver.Grant{c.grant}, renewals: make([]driver.Renewal, 1)}
			d := protocol.NewDecoder(protocol.AddError(protocol.Begin(protocol.LockAnswer), lost).Body())
			x.takeRenewals(q, &d)
			c.lost <- q.renewals[0].Err
		},
	} {
		x, c := newClaim(t, driver.Now())
		c.state = claimHeld
		c.grant = driver.Grant{Key: "k", Token: "token", Fence: 7, TTL: time.Minute, Deadline: driver.Now().Add(time.Minute)}
		lose(x, c)
		if err := <-c.lost; c.state != claimHeld || c.grant.Fence != 7 || !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: state %d, fence %d, %v", name, c.state, c.grant.Fence, err)
		}
		if frames := x.report(); len(frames) != 1 || frames[0].Type() != protocol.LockReported {
			t.Errorf("%s: a lost lease is reported", name)
		}
	}
}

// A waiter that gives up, and gets no answer, says that the key is busy only if the hub
// has confirmed its place within the last two seconds (L21).
func TestWaiterWithoutAnAnswerIsBusyOnlyIfItWasConfirmedLately(t *testing.T) {
	for name, test := range map[string]struct {
		age, wait time.Duration
		busy      bool
	}{
		"confirmed lately":     {0, time.Second, true},
		"confirmed long ago":   {maxAge, time.Second, false},
		"did not want to wait": {0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, c := newClaim(t, driver.Now())
			c.request.Wait = test.wait
			c.enqueue(&protocol.Decoder{})
			c.confirmed = c.confirmed.Add(-test.age)
			_, err := x.leave(t.Context(), c)
			if errors.Is(err, driver.ErrNotAcquired) != test.busy || err == nil {
				t.Errorf("%v, want busy: %v", err, test.busy)
			}
			if len(x.claims) != 0 { // it would be queued again at the next hub (L8)
				t.Error("the claim is still there")
			}
		})
	}
}

// A grant that the hub has made just before it reads that the waiter gives up is the
// answer to that, and is not lost.
func TestGrantAtTheEndOfAWaitIsKept(t *testing.T) {
	x, c := newClaim(t, driver.Now())
	silentHub(t, x)
	c.enqueue(&protocol.Decoder{})
	left := make(chan error, 1)
	var g driver.Grant
	go func() {
		var err error
		g, err = x.leave(context.WithoutCancel(t.Context()), c)
		left <- err
	}()
	f := protocol.Begin(protocol.LockAnswer).Uint(asks(t, x, 0)).Byte(protocol.VerdictDone)
	protocol.AddGrant(f, &driver.Grant{Fence: 7, Deadline: driver.Now(), Queued: true}, x.clock)
	d := protocol.NewDecoder(f.Body())
	x.answer(&d)
	if err := <-left; err != nil || g.Fence != 7 || len(x.claims) != 1 {
		t.Errorf("%+v, %v, want the grant of fence 7", g, err)
	}
}

// A request that ends without a lease leaves nothing, here and for the next hub (L8, L18).
func TestClaimThatHasEndedIsForgotten(t *testing.T) {
	for name, err := range map[string]error{
		"refused": &driver.NotAcquiredError{}, "barred": &driver.LostError{}, "not answered": errHubGone, "cancelled": context.Canceled,
	} {
		x, c := newClaim(t, driver.Now())
		if x.end(c, err); len(x.claims) != 0 {
			t.Errorf("%s: the claim is still there", name)
		}
	}
}

// A hub that takes over right after the answer to a release learns of no lease, and of
// a key that stays taken (L5).
func TestReleasedClaimIsNotReported(t *testing.T) {
	for name, test := range map[string]struct {
		grant  driver.Grant // of the release
		answer *protocol.Frame
		frames int // of the report: lease, rest, and its end
	}{
		"released":             {driver.Grant{}, protocol.Begin(protocol.LockAnswer).Uint(1).Byte(protocol.VerdictDone), 1},
		"not found":            {driver.Grant{}, protocol.AddFailure(protocol.Begin(protocol.LockAnswer).Uint(1), &driver.LostError{Key: "k", Cause: driver.Expired}), 1},
		"with a cooldown":      {driver.Grant{Rest: time.Minute, Rev: 1}, protocol.Begin(protocol.LockAnswer).Uint(1).Byte(protocol.VerdictDone), 3},
		"a cooldown, no lease": {driver.Grant{Rest: time.Minute, Rev: 1}, protocol.AddFailure(protocol.Begin(protocol.LockAnswer).Uint(1), &driver.LostError{Key: "k", Cause: driver.Expired}), 1},
	} {
		x, c := newClaim(t, driver.Now())
		c.state, c.grant = claimHeld, driver.Grant{Key: "k", Token: "token", TTL: time.Minute, Deadline: driver.Now().Add(time.Minute)}
		q := newQuestion("k")
		q.over, q.rest, q.rev = c, test.grant.Rest, test.grant.Rev
		x.asked[1] = q
		d := protocol.NewDecoder(test.answer.Body())
		x.answer(&d)
		if frames := x.report(); len(frames) != test.frames {
			t.Errorf("%s: the next hub gets %d frames, want %d", name, len(frames), test.frames)
		}
	}
}
