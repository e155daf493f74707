package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// watched opens a driver behind a proxy that knows the scripts by name.
func watched(t *testing.T) (driver.Driver, *redistest.Proxy) {
	t.Helper()
	names := redis.ScriptNames(nil)
	p := redistest.StartProxy(t, shared, func(args []string) string {
		if len(args) > 1 && names[args[1]] != "" {
			return names[args[1]]
		}
		return redistest.FirstWord(args)
	})
	return open(t, redis.Config{URL: p.URL()}), p
}

func pttl(t testing.TB, key string) time.Duration {
	t.Helper()
	return time.Duration(do(t, "PTTL", "mega:{"+key+"}").(int64)) * time.Millisecond
}

// inboxOf is the channel of the process that holds key.
func inboxOf(t testing.TB, key string) string {
	t.Helper()
	return "mega:inbox:" + strings.Split(do(t, "GET", "mega:{"+key+"}").(string), " ")[5]
}

func TestPushedGrantIsEnteredWithoutAnotherCall(t *testing.T) {
	near := openShared(t)
	far, p := watched(t)
	var g driver.Grant
	for try := 1; ; try++ {
		held := acquire(t, near, request(t.Name()))
		next := queueUp(t, far, request(t.Name()))
		p.ResetCounts()
		release(t, near, held)
		g = next.granted(t, slack)
		n := p.Count("confirm") + p.Count("renew") + p.Count("acquire")
		if n == 0 {
			break
		}
		if try == 3 { // on a busy machine the waiter may have to ask, since its ticket was last confirmed too long ago
			t.Errorf("it made %d calls before it entered: %v", n, p.Counts())
			break
		}
		release(t, far, g)
	}
	if left := pttl(t, t.Name()); left > 2*time.Second {
		t.Errorf("it lives for %v, want the window", left)
	}
	if sure := g.Deadline.Sub(driver.Now()); sure <= 0 || sure > 2*time.Second || !g.Queued {
		t.Errorf("it is sure for %v, queued %v", sure, g.Queued)
	}
	if r := far.Renew(t.Context(), []driver.Grant{g}); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if left := pttl(t, t.Name()); left < 9*time.Second {
		t.Errorf("renewed, it lives for %v", left)
	}
	release(t, far, g)
}

func TestDeadlineOfAPushedGrantIsNeverLaterThanTheServers(t *testing.T) {
	near, far := openShared(t), openShared(t)
	for range suite.Scaled(20) {
		held := acquire(t, near, request(t.Name()))
		next := queueUp(t, far, request(t.Name()))
		release(t, near, held)
		g := next.granted(t, slack)
		left := pttl(t, t.Name()) // first: a pause of this process before the next line lessens the other
		if sure := g.Deadline.Sub(driver.Now()); sure > left {
			t.Errorf("it is believed for %v, and lives for %v", sure, left)
		}
		release(t, far, g)
	}
}

func TestPushedGrantWithoutRenewalLivesForExactlyItsTTL(t *testing.T) {
	near, far := openShared(t), openShared(t)
	for _, ttl := range []time.Duration{300 * time.Millisecond, 8 * time.Second} {
		held := acquire(t, near, request(t.Name()))
		r := request(t.Name())
		r.TTL, r.NoRenew = ttl, true
		next := queueUp(t, far, r)
		release(t, near, held)
		g := next.granted(t, slack)
		left := pttl(t, t.Name()) // first: a pause of this process before the next line lessens the other
		sure := g.Deadline.Sub(driver.Now())
		if left > ttl || timed && left < ttl-slack || sure > left || timed && sure < left-ttl/20-slack {
			t.Errorf("TTL %v: it lives for %v and is believed for %v", ttl, left, sure)
		}
		_ = far.Release(t.Context(), g) // the short one may be over
	}
}

func TestGrantThatNobodyWaitsForIsGivenBackAtOnce(t *testing.T) {
	near, far := openShared(t), openShared(t)
	held := acquire(t, far, request(t.Name()))
	inbox, stray := inboxOf(t, t.Name()), token()
	release(t, far, held)
	do(t, "SET", "mega:{"+t.Name()+"}", stray+" 3 5 1 0 "+strings.TrimPrefix(inbox, "mega:inbox:"), "PX", 60_000)
	do(t, "PUBLISH", inbox, fmt.Sprintf("g2 %s 5 0 mega:{%s}", stray, t.Name()))
	release(t, near, acquire(t, near, request(t.Name())))
}

func TestPushesThatMakeNoSenseAreIgnored(t *testing.T) {
	near, far := openShared(t), openShared(t)
	held := acquire(t, far, request(t.Name()))
	for _, m := range []string{"", "x", "g2", "g2 a b c d", "f2", "f2 nobody {}", "g2 nobody 1 0 elsewhere", "w2 nobody 5", "g3 nobody", "g2 " + held.Token + " 1 0 mega:{" + t.Name() + "}"} {
		do(t, "PUBLISH", inboxOf(t, t.Name()), m)
	}
	next := queueUp(t, near, request(t.Name()))
	if r := far.Renew(t.Context(), []driver.Grant{held}); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	release(t, far, held)
	release(t, near, next.granted(t, slack))
}

// A ticket that was lost and queued again may be told of a grant that it had
// before, which is long over. It has to ask.
func TestOldPushForATicketThatWasQueuedAgainIsNotBelieved(t *testing.T) {
	t.Parallel()
	near, far := openShared(t), openShared(t)
	held := acquire(t, near, request(t.Name()))
	probe := acquire(t, far, request(t.Name()+":probe"))
	inbox := inboxOf(t, t.Name()+":probe")
	release(t, far, probe)
	next := queueUp(t, far, request(t.Name()))
	queue := "mega:{" + t.Name() + "}:order"
	do(t, "ZREM", queue, next.Token)
	soon(t, "the ticket to be queued again", func() bool { return do(t, "ZSCORE", queue, next.Token) != nil })
	do(t, "PUBLISH", inbox, fmt.Sprintf("g2 %s 5 0 mega:{%s}", next.Token, t.Name()))
	select {
	case <-next.done:
		t.Fatalf("it has entered beside the holder: %+v, %v", next.grant, next.err)
	case <-time.After(300 * time.Millisecond):
	}
	release(t, near, held)
	release(t, far, next.granted(t, slack))
}

// L12: a renewal sets the TTL in both directions, and a late copy of an older one
// neither shortens nor lengthens it.
func TestRenewalSetsTheTTLUnlessItIsALateCopy(t *testing.T) {
	d := openShared(t)
	for _, slots := range []int{1, 2} {
		r := seat(t.Name(), slots)
		r.TTL = time.Hour
		g := acquire(t, d, r)
		defer release(t, d, g) // the server outlives the test
		for _, step := range []struct {
			rev       uint64
			ttl, want time.Duration
		}{
			{0, time.Hour, time.Hour}, {1, 20 * time.Second, 20 * time.Second}, {1, 10 * time.Second, 10 * time.Second},
			{0, time.Hour, 10 * time.Second}, {3, time.Minute, time.Minute}, {2, time.Second, time.Minute},
		} {
			g.Rev, g.TTL = step.rev, step.ttl
			got := d.Renew(t.Context(), []driver.Grant{g})[0]
			left := inspect(t, d, t.Name()).Holders[g.Slot].Left
			if got.Err != nil || left > step.want || left < step.want-9*time.Second {
				t.Errorf("%d slots, rev %d to %v: %v, %v are left, want %v", slots, step.rev, step.ttl, got.Err, left, step.want)
			}
			if until := got.Deadline.Sub(driver.Now()) + driver.Margin(step.want); until > step.want+time.Second || until < step.want-9*time.Second {
				t.Errorf("%d slots, rev %d to %v: the deadline is in %v, want %v", slots, step.rev, step.ttl, until, step.want)
			}
		}
		if again := acquire(t, d, r); again.Fence != g.Fence { // a late copy of the acquire
			t.Errorf("asked again: fence %d, was %d", again.Fence, g.Fence)
		}
		if left := inspect(t, d, t.Name()).Holders[g.Slot].Left; left > time.Minute {
			t.Errorf("a copy of the acquire lengthens the lease to %v", left)
		}
	}
}

func TestForceThatIsSentTwiceTakesNothingFromTheSuccessor(t *testing.T) {
	near := openShared(t)
	far, p := watched(t)
	held := acquire(t, near, request(t.Name()))
	next := queueUp(t, near, request(t.Name()))
	fault := p.ResetAfter(redistest.Named("force"))
	n, err := far.ForceRelease(t.Context(), t.Name(), driver.Force{Reason: "test"})
	<-fault.Hit()
	if err != nil || n != 1 {
		t.Errorf("forced %d, %v, want 1", n, err)
	}
	if got := near.Renew(t.Context(), []driver.Grant{held, next.granted(t, slack)}); !errors.Is(got[0].Err, driver.ErrLost) || got[1].Err != nil {
		t.Errorf("renewals: %v", got)
	}
}

// The push of a grant, and that of its force, reach a connection that is half open.
// A heartbeat finds that the ticket is barred.
func TestForceOfAGrantWhosePushWasLostEndsTheWait(t *testing.T) {
	t.Parallel()
	near := openShared(t)
	url, pipe := through(t, shared)
	far := open(t, redis.Config{URL: url})
	held := acquire(t, near, request(t.Name()))
	next := queueUp(t, far, request(t.Name()))
	pipe.Freeze()
	release(t, near, held)
	if n, err := near.ForceRelease(t.Context(), t.Name(), driver.Force{Reason: "test"}); err != nil || n != 1 {
		t.Fatalf("forced %d, %v, want 1", n, err)
	}
	select {
	case <-next.done:
	case <-time.After(generous(2 * slack)):
		t.Fatal("it still waits")
	}
	if lost, ok := errors.AsType[*driver.LostError](next.err); !ok || lost.Cause != driver.Forced || lost.Reason != "test" {
		t.Errorf("got %v, want a loss by force", next.err)
	}
}

func TestFullServerPushesNoUnwrittenGrant(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	a, b := open(t, redis.Config{URL: s.URL()}), open(t, redis.Config{URL: s.URL()})
	g := acquire(t, a, request("k"))
	next := queueUp(t, b, request("k"))
	if _, err := s.Do("CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}
	// A release frees memory and may hand over; a new request may not be taken.
	if err := a.Release(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	got := next.granted(t, slack)
	if n := len(inspect(t, b, "k").Holders); n != 1 {
		t.Errorf("it was told of a grant, and there are %d", n)
	}
	if r := b.Renew(t.Context(), []driver.Grant{got}); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	refuses(t, "OOM", func() error { _, err := a.Acquire(t.Context(), request("other")); return err })
	release(t, b, got)
}

func TestCancelledCallReturnsAtOnceAlsoInMidCall(t *testing.T) {
	d, p := watched(t)
	took := least(func() {
		release(t, d, acquire(t, d, request(t.Name()))) // the connections are there
		fault := p.HoldReply(redistest.Named("acquire"))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-fault.Hit()
			cancel()
		}()
		r := request(t.Name())
		if _, err := d.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		fault.Release()
		if err := d.Release(t.Context(), driver.Grant{Key: r.Key, Token: r.Token}); err != nil {
			t.Error(err)
		}
	})
	if timed && took > driver.CallTimeout { // the bound of a call whose context does not end
		t.Errorf("it took %v", took)
	}
	release(t, d, acquire(t, d, request(t.Name())))
}
