//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

func TestNamespacesDoNotExcludeEachOther(t *testing.T) { // L24
	h := newHub(t, HubConfig{})
	lockers := map[string]*lock.Locker{}
	for name, namespace := range map[string]string{"one": "staging", "two": "staging", "other": "production", "none": ""} {
		n, _ := join(t, h, Config{})
		l, err := lock.New(n.Locks(namespace), lock.Config{Wait: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		lockers[name] = l
	}
	key := strings.Repeat("k", 512) // as long as a key can be
	for _, name := range []string{"one", "other", "none"} {
		lease, err := lockers[name].Acquire(t.Context(), key, lock.TTL(time.Minute), lock.Label(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer func() {
			if err := lease.Extend(t.Context(), 2*time.Minute); err != nil {
				t.Errorf("%s: extend: %v", name, err)
			}
			if err := lease.Release(); err != nil {
				t.Errorf("%s: release: %v", name, err)
			}
		}()
	}
	var busy *lock.NotAcquiredError
	if _, err := lockers["two"].Acquire(t.Context(), key); !errors.As(err, &busy) || busy.Key != key || len(busy.Holders) != 1 || busy.Holders[0].Label != "one" {
		t.Errorf("the same namespace: %v", err)
	}
	all, err := lockers["two"].List(t.Context(), "k")
	if err != nil || len(all) != 1 || all[0].Key != key || all[0].Holders[0].Label != "one" {
		t.Errorf("list: %v, %v", all, err)
	}
	if all, err := lockers["none"].List(t.Context(), ""); err != nil || len(all) != 1 || all[0].Key != key || all[0].Holders[0].Label != "none" {
		t.Errorf("list without a namespace: %v, %v", all, err)
	}
	for _, name := range []string{"other", "none"} {
		s, err := lockers[name].Inspect(t.Context(), key)
		if err != nil || s.Key != key || s.Holders[0].Label != name {
			t.Errorf("%s: inspect: %v, %v", name, s, err)
		}
	}
	lease, err := lockers["one"].Acquire(t.Context(), "forced")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := lockers["other"].ForceRelease(t.Context(), "forced", "test"); n != 0 || err != nil {
		t.Errorf("force in another namespace: %d, %v", n, err)
	}
	if n, err := lockers["two"].ForceRelease(t.Context(), "forced", "test"); n != 1 || err != nil {
		t.Errorf("force: %d, %v", n, err)
	}
	<-lease.Context().Done()
	lost, ok := errors.AsType[*lock.LostError](context.Cause(lease.Context()))
	if !ok || lost.Cause != driver.Forced || lost.Key != "forced" {
		t.Errorf("the holder is told %v", context.Cause(lease.Context()))
	}
}
