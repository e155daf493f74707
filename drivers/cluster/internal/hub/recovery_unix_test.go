//go:build linux || darwin

package hub

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// Clients whose files were removed connect in a time that does not pass while the hub
// itself is stopped: it accepts nobody then.
func TestClientsWithoutAFileHaveTheirTimeAfterThePauseOfTheHub(t *testing.T) {
	lock := take(t, openSocket(t))
	r, err := newRecovery(lock, lock.Left(), true)
	if err != nil {
		t.Fatal(err)
	}
	now := protocol.NodeNanos() + int64(time.Hour)
	if left, _, _ := r.status(now); left < time.Second {
		t.Errorf("after a pause of an hour, %v are left", left)
	}
	for range freshBound / maxPause {
		now += int64(maxPause)
		r.status(now)
	}
	if left, _, _ := r.status(now); left > 0 {
		t.Errorf("after the time, %v are left", left)
	}
}

// A hub whose files were removed may end before its successor looks for it again. Its
// clients have their time nevertheless. L1
func TestClientsWithoutAFileHaveTheirTimeWhereTheirHubHasEnded(t *testing.T) {
	s := openSocket(t)
	last := take(t, s)
	l, err := last.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(s.Path()+".clients"), os.Remove(s.Path()), os.Remove(s.Path()+".lock")); err != nil {
		t.Fatal(err)
	}
	lock := take(t, s)
	if err := errors.Join(l.Close(), last.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := newRecovery(lock, lock.Left(), false)
	if err != nil {
		t.Fatal(err)
	}
	if left, _, _ := r.status(r.seen); left < freshBound/2 || protocol.IsClosed(r.met) {
		t.Errorf("%v are left", left)
	}
}

func openSocket(t *testing.T) *rendezvous.Socket {
	t.Helper()
	s, err := rendezvous.Open(filepath.Join(t.TempDir(), "own", "s"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// take takes the hub lock until the end of the test.
func take(t *testing.T, s *rendezvous.Socket) *rendezvous.HubLock {
	t.Helper()
	lock, err := s.Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	return lock
}

// The hub after one that has granted leases until an hour from now waits for each client
// as long as its leases may be valid, also if the client ends meanwhile and leaves them
// behind. L1
func TestRecoveryWaitsForTheLeasesOfEachClient(t *testing.T) {
	const minute, hour = int64(time.Minute), int64(time.Hour)
	tests := map[string]struct {
		longest      int64 // the maximum duration of its leases
		left         int64 // how long the leases that it leaves behind are valid
		least, most  int64 // the bounds of the wait
		silent, gone int   // the clients that are counted, and that end
	}{
		"a client without a lease":                             {0, 0, math.MinInt64, 0, 0, 0},
		"a client with leases of a minute":                     {minute, 0, minute + protocol.MaxSkew, minute + int64(time.Second), 1, 0},
		"a client with longer leases than the record":          {2 * hour, 0, hour - minute, hour + int64(time.Second), 1, 0},
		"a client that ends and has left a lease of a minute":  {hour, minute, minute, minute, 0, 1},
		"a client that ends and has left nothing":              {hour, 0, math.MinInt64, 0, 0, 1},
		"a client that ends and has left a lease that expired": {hour, -minute, math.MinInt64, 0, 0, 1},
	}
	for name, x := range tests {
		t.Run(name, func(t *testing.T) {
			s := openSocket(t)
			last := take(t, s)
			client, err := s.NewClient()
			if err = errors.Join(err, client.Bound(x.longest), last.Settle(), last.Cover(protocol.NodeNanos()+hour, 1), last.Close()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Leave(0) }()
			lock := take(t, s)
			r, err := newRecovery(lock, lock.Left(), false)
			if err != nil {
				t.Fatal(err)
			}
			now := r.seen
			if x.gone > 0 {
				left := x.left
				if left != 0 {
					left += now
				}
				if err := client.Leave(left); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second check sees the same
				left, silent, absent := r.status(now)
				if int64(left) < x.least || int64(left) > x.most || silent != x.silent || absent != 1-x.gone {
					t.Errorf("%v are left, %d clients are silent, %d absent", left, silent, absent)
				}
			}
			if left, _, _ := r.status(now + 2*hour); left > 0 {
				t.Errorf("after two hours, %v are left", left)
			}
		})
	}
}

// A busy machine may keep a client from coming back for as long as queues wait. Limits
// wait longer for it, because only that client may know what it was granted. W1
func TestLimitsWaitForALivingClient(t *testing.T) {
	s := openSocket(t)
	client, err := s.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Leave(0) }()
	for _, reports := range []bool{true, false} {
		lock := take(t, s)
		r, err := newRecovery(lock, lock.Left(), false)
		if err != nil {
			t.Fatal(err)
		}
		now := r.seen
		pass := func(d time.Duration) {
			for range d / maxPause {
				now += int64(maxPause)
				r.status(now)
			}
		}
		if pass(2 * queueBound); protocol.IsClosed(r.met) {
			t.Error("the limits do not wait")
		}
		if reports {
			r.reported(client.Name())
			r.status(now)
		} else {
			pass(meetBound)
		}
		if !protocol.IsClosed(r.met) {
			t.Errorf("the limits wait for ever (reported: %v)", reports)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The fences of a hub are above those of the last one, also if the clock of the machine
// has stepped back by more than the last hub lived. L2
func TestFencesOfTheNextHubAreAboveTheRecord(t *testing.T) {
	lock := take(t, openSocket(t))
	last := uint64(time.Now().Add(48 * time.Hour).UnixMicro())
	s, err := Follow(Config{}, lock, rendezvous.Record{Fence: last}, false)
	if err != nil {
		t.Fatal(err)
	}
	s.Grant()
	r := driver.Request{Key: "k", Token: "token", TTL: time.Minute, Slots: 1, Fences: 1}
	g, queued, err := s.locks.table.Ask(&r, table.NewOwner(func(table.Event) {}), 0)
	if err != nil || queued || g.Fence <= last {
		t.Errorf("fence %d after %d, queued: %v, %v", g.Fence, last, queued, err)
	}
}
