package shell

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func TestAHolderWithoutAnOrderIsWaitedFor(t *testing.T) {
	p := newPlace(t)
	before := children(t)
	l := &launcher{p: Process{Name: "mega-lock", Environ: p.environ()}}
	if err := l.startHolder("holder", func() {}); err == nil {
		t.Fatal("an order that is a function is written as JSON")
	}
	p.until("the holder has ended and is no zombie", func() bool { return noneSince(t, before) })
}

// A process that outlives its keeper, such as mega mcp, waits for it.
func TestAKeeperThatHasEndedIsNoZombie(t *testing.T) {
	p := newPlace(t)
	before := children(t)
	b := Backend{Socket: filepath.Join(p.dir, "mega", "cluster.sock")}
	c, err := b.Open(t.Context(), Process{Name: "mega-lock", Environ: p.environ()}, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	c.Leave()
	keepers := 0
	for child := range children(t) {
		if !before[child] {
			keepers++
			if err := redistest.Signal(number(child), syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	if keepers != 1 {
		t.Fatalf("%d keepers", keepers)
	}
	p.until("the keeper has ended and is no zombie", func() bool { return noneSince(t, before) })
}

// noneSince reports whether no process besides before is a child of this one.
func noneSince(t *testing.T, before map[string]bool) bool {
	t.Helper()
	for child := range children(t) {
		if !before[child] {
			return false
		}
	}
	return true
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
		for child := range strings.FieldsSeq(string(text)) {
			all[child] = true
		}
	}
	return all
}
