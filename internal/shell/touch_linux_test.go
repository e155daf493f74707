package shell

import (
	"context"
	"os"
	"testing"
	"time"
)

// A cleaner of temporary folders removes files that are old, and a lease may be
// kept for days.
func TestTheFilesOfALeaseStayYoung(t *testing.T) {
	p := newPlace(t)
	t.Setenv("XDG_RUNTIME_DIR", p.dir)
	lease, err := memoryLocks(t).Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release() }()
	k, err := newKept(lease, acquireOrder{Max: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer k.remove()
	k.touch = time.Millisecond
	files := []string{k.path, k.path + socketSuffix}
	old := time.Now().Add(-20 * 24 * time.Hour)
	for _, path := range files {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error)
	go func() { kept <- k.keep(ctx, nil) }()
	p.until("the times of the files are new", func() bool {
		for _, path := range files {
			if info, err := os.Lstat(path); err != nil || time.Since(info.ModTime()) > time.Hour {
				return false
			}
		}
		return true
	})
	cancel()
	if err := <-kept; err != nil {
		t.Error(err)
	}
}
