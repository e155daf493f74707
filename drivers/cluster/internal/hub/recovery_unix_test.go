//go:build linux || darwin

package hub

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
)

// Clients whose files were removed connect in a time that does not pass while the hub
// itself is stopped: it accepts nobody then.
func TestClientsWithoutAFileHaveTheirTimeAfterThePauseOfTheHub(t *testing.T) {
	s, err := rendezvous.Open(filepath.Join(t.TempDir(), "own", "s"))
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.Take()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
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
