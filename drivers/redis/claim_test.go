package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

func newClaim(token string) *claim {
	return &claim{r: driver.Request{Token: token, TTL: time.Second}, lost: make(chan error, 1)}
}

func TestClaimsThatEndedWithoutAReleaseAreForgotten(t *testing.T) {
	cs := newClaims()
	ended := driver.Now().Add(-time.Hour)
	for range 20 * minSweep {
		c := newClaim(newID())
		cs.add(c)
		cs.held(c, ended)
	}
	if n := cs.len(); n > 2*minSweep {
		t.Errorf("%d claims are kept of leases that have ended", n)
	}
}

func TestClaimsThatLiveAreKept(t *testing.T) {
	cs := newClaims()
	for range 5 * minSweep {
		c := newClaim(newID())
		cs.add(c)
		cs.held(c, driver.Now().Add(time.Hour))
	}
	if n := cs.len(); n != 5*minSweep {
		t.Errorf("%d claims are kept, want %d", n, 5*minSweep)
	}
}

func TestPushBeforeTheReplyIsNotLost(t *testing.T) {
	cs, c := newClaims(), newClaim("t")
	cs.add(c)
	if known, news := cs.give("t", award{fence: 7}); !known || !news {
		t.Errorf("known %v, news %v", known, news)
	}
	cs.queued(c, 1, driver.Now())
	select {
	case <-c.wake:
	default:
		t.Fatal("it was not woken")
	}
	if a, _, _, _ := cs.awarded(c); a == nil || a.fence != 7 {
		t.Errorf("it was given %+v", a)
	}
}

func TestClaimThatWasAbandonedTakesNoGrant(t *testing.T) {
	cs, c := newClaims(), newClaim("t")
	cs.add(c)
	cs.queued(c, 1, driver.Now())
	cs.abandon(c)
	if known, _ := cs.give("t", award{}); known {
		t.Error("a grant for it has found a taker")
	}
	if len(cs.tickets()) != 0 || len(cs.orphans()) != 1 {
		t.Errorf("%d tickets, %d orphans, want 0 and 1", len(cs.tickets()), len(cs.orphans()))
	}
	if loose := cs.remove("t"); !loose || len(cs.orphans()) != 0 {
		t.Error("its release need not bar the token, or leaves an orphan")
	}
}

// Close sends the missing releases. It has to wait for a server that does not answer.
func TestAbandonedClaimThatHasEndedNeedsNoRelease(t *testing.T) {
	cs, c := newClaims(), newClaim("t")
	cs.add(c)
	cs.abandon(c)
	c.until = driver.Now().Add(-time.Millisecond)
	if n := len(cs.orphans()); n != 0 {
		t.Errorf("%d orphans, want 0", n)
	}
}

// The acquire of a ticket that the server has lost is repeated by a heartbeat. Its
// answer may come after the waiter has gone, and after the release.
func TestAnswerToARepeatedRequestRevivesNoClaim(t *testing.T) {
	for name, end := range map[string]func(cs *claims, c *claim){
		"abandoned": func(cs *claims, c *claim) { cs.abandon(c) },
		"left":      func(cs *claims, _ *claim) { cs.leave("t") },
		"removed":   func(cs *claims, _ *claim) { cs.remove("t") },
		"held":      func(cs *claims, c *claim) { cs.held(c, driver.Now().Add(time.Second)) },
	} {
		cs, c := newClaims(), newClaim("t")
		cs.add(c)
		cs.queued(c, 1, driver.Now())
		if _, _, waits := cs.loosen("t"); !waits {
			t.Fatal("it does not wait")
		}
		end(cs, c)
		cs.requeued(c, 1, driver.Now())
		if n := len(cs.tickets()); n != 0 {
			t.Errorf("%s: %d tickets have heartbeats", name, n)
		}
	}
}

func TestHolderIsNotifiedOfItsLossOnce(t *testing.T) {
	cs, c := newClaims(), newClaim("t")
	cs.add(c)
	for range 3 {
		cs.revoke("t", `{"reason":"test"}`)
	}
	cs.revoke("nobody", "")
	if err := <-c.lost; !errors.Is(err, driver.ErrLost) || len(c.lost) != 0 {
		t.Errorf("it heard %v, and %d more", err, len(c.lost))
	}
}

func TestErrorsAreSorted(t *testing.T) {
	for text, want := range map[string]verdict{
		"NOSCRIPT No matching script. Please use EVAL.":                             missing,
		"MOVED 3999 127.0.0.1:6381":                                                 refused,
		"ASK 3999 127.0.0.1:6381":                                                   refused,
		"TRYAGAIN Multiple keys request during rehashing of slot":                   refused,
		"LOADING Redis is loading the dataset in memory":                            refused,
		"BUSY Redis is busy running a script.":                                      refused,
		"READONLY You can't write against a read only replica.":                     refused,
		"CLUSTERDOWN The cluster is down":                                           refused,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set":   refused,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently":     refused,
		"NOREPLICAS Not enough good replicas to write.":                             refused,
		"OOM command not allowed when used memory > 'maxmemory'.":                   refused,
		"ERR max number of clients reached":                                         refused,
		"ERR Error running script (call to f_0): @user_script:5: -READONLY You can": refused,
		"ERR Error running script (call to f_0): @user_script:5: WRONGTYPE Operati": final,
		"ERR Script attempted to access a non local key in a cluster node script":   unknown,
		"ERR Error running script: Lua script attempted to access a non local key":  unknown,
		"ERR Attempted to access a non local key in a cluster node script:":         unknown, // Valkey 9
		"NOAUTH Authentication required.":                                           final,
		"WRONGPASS invalid username-password pair":                                  final,
		"NOPERM this user has no permissions to access one of the keys":             final,
		"WRONGTYPE Operation against a key holding the wrong kind of value":         final,
		"ERR unknown command":                                                       final,
		"READONLYX":                                                                 final,
	} {
		if got := judgeAnswer(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// A beat may tell of a grant before its push does. By the time of the push the
// lease may be on its way back: an answer to the push would be a second
// release, and the holder's own would find nothing.
func TestAPushDuringTheReleaseNeedsNoAnswer(t *testing.T) {
	cs := newClaims()
	c := &claim{r: driver.Request{Token: "token", TTL: time.Second}}
	cs.add(c)
	cs.held(c, driver.Now().Add(time.Second))
	if got, loose := cs.leave("token"); got != c || loose {
		t.Errorf("leave = %v, %v, want the claim and no copy on its way", got, loose)
	}
	if known, news := cs.give("token", award{fence: 1}); !known || news {
		t.Errorf("a push during the release is known: %v, news: %v, want only known", known, news)
	}
	cs.remove("token")
	if known, _ := cs.give("token", award{fence: 1}); known {
		t.Error("a push after the release is known")
	}
}

func (cs *claims) len() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.byToken)
}
