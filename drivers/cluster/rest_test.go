//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// A process that reconnects, to the same hub or to the next one, reports the keys
// in their cooldown. They do not become leases that end with the process.
func TestCooldownOutlivesItsProcessAfterAReconnect(t *testing.T) {
	for name, next := range map[string]bool{"to the same hub": false, "to the next hub": true} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			host := joined(t, Config{Socket: socket})
			n := joined(t, Config{Socket: socket, Recruit: func(context.Context) error { return nil }}) // never the hub
			r := driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1}
			g, err := n.Lock().Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			g.Rest, g.Rev = time.Hour, 1
			if err := n.Lock().Release(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			before, err := n.session()
			if err != nil {
				t.Fatal(err)
			}
			if next {
				heir := joined(t, Config{Socket: socket})
				if err := host.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				host = heir
			} else {
				cut(t, n)
			}
			eventually(t, "the reconnect", func() bool {
				s, err := n.session()
				return err == nil && s != before
			})
			if _, err := n.Lock().Inspect(t.Context(), "k"); err != nil { // the hub has read the report
				t.Fatal(err)
			}
			r.Token, r.Wait = "other", 0
			busy := func(when string) {
				t.Helper()
				if _, err := host.Lock().Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("%s: %v, want ErrNotAcquired", when, err)
				}
			}
			busy("after the reconnect")
			n.end() // it does not connect again
			cut(t, n)
			eventually(t, "the end of the process", func() bool { clients, here := host.Clients(); return here && clients == 1 })
			busy("after the end of the process")
		})
	}
}

// A process that has no answer to a release with a cooldown reports the lease to the
// hub that has executed it. The key does not become a lease that ends with the
// process, whether or not it repeats the release (O5).
func TestCooldownOutlivesItsProcessAfterALostAnswer(t *testing.T) {
	for name, repeated := range map[string]bool{"and the release is repeated": true, "and the process ends": false} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			host := joined(t, Config{Socket: socket})
			n := joined(t, Config{Socket: socket, Recruit: func(context.Context) error { return nil }}) // never the hub
			r := driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1}
			g, err := n.Lock().Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			g.Rest, g.Rev = time.Hour, 1
			before, err := n.session()
			if err != nil {
				t.Fatal(err)
			}
			if err := before.line.Send(restFrame(0, &g)); err != nil { // without an answer
				t.Fatal(err)
			}
			handled := func() {
				t.Helper()
				if _, err := n.Lock().Inspect(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			handled() // the release
			cut(t, n)
			eventually(t, "the reconnect", func() bool {
				s, err := n.session()
				return err == nil && s != before
			})
			handled() // the report
			if repeated {
				if err := n.Lock().Release(t.Context(), g); err != nil {
					t.Fatal(err)
				}
			}
			n.end() // it does not connect again
			cut(t, n)
			eventually(t, "the end of the process", func() bool { clients, here := host.Clients(); return here && clients == 1 })
			r.Token, r.Wait = "other", 0
			if _, err := host.Lock().Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("after the end of the process: %v, want ErrNotAcquired", err)
			}
		})
	}
}

// A force ends a cooldown for good: the process that has released the key does not
// report it to the next hub (L16).
func TestAForcedCooldownDoesNotComeBackAtTheNextHub(t *testing.T) {
	socket := socketPath(t)
	host, n := joined(t, Config{Socket: socket}), joined(t, Config{Socket: socket})
	g, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1})
	if err != nil {
		t.Fatal(err)
	}
	g.Rest, g.Rev = time.Hour, 1
	if err := n.Lock().Release(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if ended, err := n.Lock().ForceRelease(t.Context(), "k", driver.Force{Reason: "test"}); ended != 1 || err != nil {
		t.Fatalf("force: %d, %v", ended, err)
	}
	if err := host.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "k", Token: "other", TTL: time.Minute, Slots: 1, Fences: 1}); err != nil {
		t.Errorf("at the next hub: %v", err)
	}
}

// joined returns a node that is closed with the test.
func joined(t *testing.T, c Config) *Node {
	t.Helper()
	n, err := Dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	return n
}

// cut ends the connection of n to its hub as the end of its process would.
func cut(t *testing.T, n *Node) {
	t.Helper()
	s, err := n.ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.line.Close()
}

func TestAcquireAfterTheEndOfTheNodeIsClosed(t *testing.T) {
	n, err := Dial(t.Context(), Config{Socket: socketPath(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1}
	if _, err := n.Lock().Acquire(t.Context(), r); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("acquire: %v, want ErrClosed", err)
	}
	g := driver.Grant{Key: "k", Token: "token", TTL: time.Minute}
	if err := n.Lock().Renew(t.Context(), []driver.Grant{g})[0].Err; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("renew: %v, want ErrClosed", err)
	}
}
