//go:build linux || darwin

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Where somebody has removed the lock file, nobody knows what the last hub gave:
// the next one waits for what those who live say, as after any other.
func TestALockFileThatIsRemovedCostsNoLease(t *testing.T) {
	costsNoLease(t, func(socket string, _ *Node, _ driver.Grant) error { return os.Remove(socket + ".lock") })
}

// A process that renews what it holds sees to it that the next hub finds its file.
func TestAMembersFileThatIsRemovedCostsNoLease(t *testing.T) {
	costsNoLease(t, func(socket string, b *Node, g driver.Grant) error {
		if err := os.Remove(filepath.Join(socket+".clients", b.clientFile().Name())); err != nil {
			return err
		}
		return b.Lock().Renew(t.Context(), []driver.Grant{g})[0].Err
	})
}

// The file of a process has the longest duration of its leases before it can have such a
// lease: the next hub waits no longer for it (L1).
func TestLongestLeaseIsInTheFileOfItsProcess(t *testing.T) {
	n := meetAt(t, socketPath(t))
	g, err := n.Lock().Acquire(t.Context(), driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1})
	must(t, err)
	if longest := time.Duration(n.clientFile().Longest()); longest != time.Minute {
		t.Errorf("it has %v, want a minute", longest)
	}
	for _, ttl := range []time.Duration{time.Hour, time.Minute} { // after Extend
		g.TTL, g.Rev = ttl, g.Rev+1
		must(t, n.Lock().Renew(t.Context(), []driver.Grant{g})[0].Err)
		if longest := time.Duration(n.clientFile().Longest()); longest != time.Hour {
			t.Errorf("it has %v, want an hour", longest)
		}
	}
}

// costsNoLease has one process hold a key, does what is to cost it nothing, and
// has another one ask for the key once that is the new hub.
func costsNoLease(t *testing.T, remove func(socket string, b *Node, g driver.Grant) error) {
	t.Helper()
	socket := socketPath(t)
	a := meetAt(t, socket) // the hub
	b := meetAt(t, socket)
	r := driver.Request{Key: "k", Token: "b", TTL: 5 * time.Second, Slots: 1}
	g, err := b.Lock().Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	before, err := a.session()
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(socket, b, g); err != nil {
		t.Fatal(err)
	}
	b.lock.mu.Lock() // it is slow to say what it has
	a.host().Fail(errors.New("as asked"))
	a.served(t, before)
	r.Token = "a"
	_, err = a.Lock().Acquire(t.Context(), r)
	b.lock.mu.Unlock()
	if err == nil {
		t.Error("two processes hold the key")
	}
}
