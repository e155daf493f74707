//go:build linux || darwin

package cluster

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// Where somebody has removed the lock file, nobody knows what the last hub gave:
// the next one waits for what those who live say, as after any other.
func TestALockFileThatIsRemovedCostsNoLease(t *testing.T) {
	socket := socketPath(t)
	a := meetAt(t, socket) // the hub
	b := meetAt(t, socket)
	r := driver.Request{Key: "k", Token: "b", TTL: 5 * time.Second, Slots: 1}
	if _, err := b.Lock().Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	before, err := a.session()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(socket + ".lock"); err != nil {
		t.Fatal(err)
	}
	b.lock.mu.Lock() // it is slow to say what it has
	a.meeting.mu.Lock()
	host := a.meeting.host
	a.meeting.mu.Unlock()
	host.fail(errors.New("as asked"))
	a.served(t, before)
	r.Token = "a"
	_, err = a.Lock().Acquire(t.Context(), r)
	b.lock.mu.Unlock()
	if err == nil {
		t.Error("two processes hold the key")
	}
}
