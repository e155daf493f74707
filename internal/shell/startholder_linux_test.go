package shell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAHolderWithoutAnOrderIsWaitedFor(t *testing.T) {
	p := newPlace(t)
	before := children(t)
	f := &front{p: Process{Name: "mega-lock", Environ: p.environ()}}
	if err := f.startHolder("holder", func() {}); err == nil {
		t.Fatal("an order that is a function is written as JSON")
	}
	p.until("the holder has ended and is no zombie", func() bool {
		for child := range children(t) {
			if !before[child] {
				return false
			}
		}
		return true
	})
}

// children returns the processes that this one has started, zombies too.
func children(t *testing.T) map[string]bool {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(threads) == 0 {
		t.Fatalf("the threads: %q, %v", threads, err)
	}
	all := map[string]bool{}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		for _, child := range strings.Fields(string(text)) {
			all[child] = true
		}
	}
	return all
}
