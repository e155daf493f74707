package history_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, d driver.Driver) *lock.Locker {
	t.Helper()
	l, err := lock.New(d, lock.Config{})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func record(t *testing.T, path, process string) *history.Recorder {
	t.Helper()
	r, err := history.NewRecorder(path, process)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func read(t *testing.T, path string) history.History {
	t.Helper()
	h, err := history.Read(path)
	must(t, err)
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitFor reads the recording until it shows what is awaited.
func waitFor(t *testing.T, path, what string, ok func(history.History) bool) history.History {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if h := read(t, path); ok(h) {
			return h
		}
	}
	t.Fatalf("waited 5s for %s", what)
	panic("unreachable")
}

func TestRecordedUseOfALockIsReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	c := history.NewClient("a", open(t, memory.NewLock()), record(t, path, "p"))
	lease, err := c.Acquire(t.Context(), "k", 1, lock.TTL(time.Minute))
	must(t, err)
	must(t, lease.Extend(t.Context(), 2*time.Minute))
	other := history.NewClient("b", open(t, memory.NewLock()), record(t, path, "q"))
	slot, err := other.Acquire(t.Context(), "other", 3)
	must(t, err)
	must(t, lease.Release())
	h := read(t, path)
	must(t, slot.Release())

	var got []history.Kind
	for _, op := range h.Ops {
		got = append(got, op.Kind)
		if op.Outcome != history.OK || op.Call > op.Return {
			t.Errorf("recorded %v", op)
		}
	}
	if len(got) != 4 || got[0] != history.Acquire || got[1] != history.Extend || got[2] != history.Acquire || got[3] != history.Release {
		t.Errorf("recorded %v", got)
	}
	acquired, extended, released := h.Ops[0], h.Ops[1], h.Ops[3]
	if acquired.Token != lease.Token() || acquired.Fence != lease.Fence() || released.Token != lease.Token() {
		t.Errorf("recorded %v and %v of lease %s", acquired, released, lease.Token())
	}
	left := time.Duration(extended.Deadline - extended.Return)
	if want := 2*time.Minute - driver.Margin(2*time.Minute); left < want-time.Second || left > want {
		t.Errorf("after Extend the deadline is %v ahead, want %v", left, want)
	}
	if b := h.Beliefs[0]; b.From != acquired.Return || b.To != released.Call {
		t.Errorf("belief %v, want from the end of %v to the start of %v", b, acquired, released)
	}
}

func TestBeliefEndsWithTheContextOfTheLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	l := open(t, memory.NewLock())
	r := record(t, path, "p")
	a, b := history.NewClient("a", l, r), history.NewClient("b", l, r)
	lease, err := a.Acquire(t.Context(), "k", 1)
	must(t, err)
	_, err = b.ForceRelease(t.Context(), "k", "test")
	must(t, err)
	<-lease.Context().Done()
	h := waitFor(t, path, "the end of the lease", func(h history.History) bool { return h.Beliefs[0].To < history.Now() })
	if held := time.Duration(h.Beliefs[0].To - h.Beliefs[0].From); held > 5*time.Second {
		t.Errorf("believed for %v in a lease that was taken", held)
	}
}

func TestBeliefOfAKilledProcessEndsWithIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	parent, child := record(t, path, "parent"), record(t, path, "child")
	c := history.NewClient("a", open(t, memory.NewLock()), child)
	lease, err := c.Acquire(t.Context(), "k", 1)
	must(t, err)
	unanswered := child.Begin(history.Op{Client: "a", Kind: history.Acquire, Key: "k", Slots: 1})
	_ = unanswered // the process dies before the call returns
	parent.Gone("child")
	gone := history.Now()
	parent.Begin(history.Op{Client: "p", Kind: history.Forget, Key: "x"})(history.Op{Client: "p", Kind: history.Forget, Key: "x", Outcome: history.OK})

	h := read(t, path)
	must(t, lease.Release())
	if b := h.Beliefs[0]; b.To > gone {
		t.Errorf("belief %v outlives its process, which was gone at %d", b, gone)
	}
	if op := h.Ops[1]; op.Outcome != history.Unknown || op.Return != history.Never {
		t.Errorf("the call that was cut off is %v, want an unknown outcome", op)
	}
}

func TestALineThatWasCutOffDoesNotHideTheNextOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	torn := `{"event":"call","process":"p1","id":7,"at":5,"client":"p1.a` + `{"event":"call","process":"p2","id":1,"at":6,"client":"p2.a","kind":"acquire","key":"k"}` + "\n"
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := history.Read(path)
	if err != nil || len(h.Ops) != 1 || h.Ops[0].Client != "p2.a" {
		t.Errorf("got %v, %v, want the call of p2.a", h.Ops, err)
	}
}

func TestUnreadableHistoryIsAnError(t *testing.T) {
	if _, err := history.Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was read")
	}
	path := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(path, []byte(`{"event":"call"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := history.Read(path); err == nil {
		t.Error("half a line was read")
	}
}
