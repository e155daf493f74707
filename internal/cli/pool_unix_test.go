//go:build unix

package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/lock"
)

// sandboxes is a pool of five with a slot in every state: 0 and 1 are withdrawn
// and held, 2 rests, 3 is free, and nothing is known of 4.
func sandboxes(t *testing.T, l *lock.Locker) {
	t.Helper()
	broken := map[int]bool{}
	pool := &lock.Pool{
		Key: "sandbox", Size: 5, Quarantine: time.Hour,
		Cleanup: func(_ context.Context, s *lock.Slot) error {
			if broken[s.Number()] {
				return errors.New("the disk is full")
			}
			return nil
		},
	}
	var slots []*lock.Slot
	for range 4 {
		s, err := l.AcquireSlot(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	broken[slots[0].Number()] = true
	if err := slots[0].Release(); err == nil {
		t.Fatal("a slot whose Cleanup fails was released without an error")
	}
	if n, err := l.ForceRelease(t.Context(), "sandbox", "it hangs", lock.OnlySlot(2)); n != 1 || err != nil {
		t.Fatalf("forced %d slots: %v", n, err)
	}
	if err := slots[2].Release(); !errors.Is(err, lock.ErrLost) {
		t.Fatalf("the release of the forced slot returned %v", err)
	}
	if err := slots[3].Release(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slots[1].Release() })
}

func TestPoolsAreListedWithTheStatesOfTheirSlots(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	sandboxes(t, l)
	hold(t, l, "product:lamp")
	hold(t, l, "render", lock.Slots(3))
	status, stdout, stderr := s.tool(t, "lock ls")
	const want = `shop, pid 4121: memory, scope process
  KEY  SLOT  HOLDER  AGE  LEFT  WAITING  LABEL
  product:lamp  -  web@host:4121  <t>  <t>  0
  render  0 of 3  web@host:4121  <t>  <t>  0
  sandbox  1 of 5  web@host:4121  <t>  <t>  0
  POOL  SIZE  HELD  FREE  DIRTY  RESTING  WITHDRAWN
  render  3  1  2  0  0  0
  sandbox  5  1  1  1  1  1
`
	if status != failure.ExitOK || stable(stdout) != want || stderr != "" {
		t.Errorf("exit status %d\n%s%s\nwant\n%s", status, stable(stdout), stderr, want)
	}
	_, stdout, _ = s.tool(t, "lock show sandbox")
	for _, line := range []string{"1 of 5 free, 1 dirty", "slot 0 is withdrawn: cleanup of slot 0", "the disk is full", "slot 2 is resting: forced, for "} {
		if !strings.Contains(stdout, line) {
			t.Errorf("no %q in\n%s", line, stdout)
		}
	}
	_, stdout, _ = s.tool(t, "lock ls sand --json")
	var all []struct {
		Locks []struct {
			Pool   lock.Tally       `json:"pool"`
			States []lock.SlotState `json:"slot_states"`
		} `json:"locks"`
	}
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || len(all) != 1 || len(all[0].Locks) != 1 {
		t.Fatalf("%v: %s", err, stdout)
	}
	if got := all[0].Locks[0]; got.Pool != (lock.Tally{Size: 5, Held: 1, Free: 1, Dirty: 1, Resting: 1, Withdrawn: 1}) || len(got.States) != 5 {
		t.Errorf("the document has %+v", got)
	}
}

// An operator finds the pool that nobody can use.
func TestPoolWithoutHoldersIsListed(t *testing.T) {
	s := newSite(t)
	l := s.run(t, "shop", 4121)
	err := l.WithSlot(t.Context(), &lock.Pool{
		Key: "sandbox", Size: 1, Init: func(context.Context, *lock.Slot) error { return errors.New("no image") }, Strikes: 1,
	}, func(context.Context, *lock.Slot) error { return nil })
	if err == nil {
		t.Fatal("a failed Init is no error")
	}
	_, stdout, _ := s.tool(t, "lock ls")
	const want = `shop, pid 4121: memory, scope process
  POOL  SIZE  HELD  FREE  DIRTY  RESTING  WITHDRAWN
  sandbox  1  0  0  0  0  1
`
	if stable(stdout) != want {
		t.Errorf("got\n%s\nwant\n%s", stable(stdout), want)
	}
	if _, stdout, _ := s.tool(t, "lock heal sandbox 0 --reason repaired"); !strings.Contains(stdout, "slot 0 is in circulation") {
		t.Errorf("heal: %s", stdout)
	}
	if _, stdout, _ := s.tool(t, "lock ls"); !strings.Contains(stable(stdout), "sandbox  1  0  0  1  0  0\n") {
		t.Errorf("after heal:\n%s", stdout)
	}
}
