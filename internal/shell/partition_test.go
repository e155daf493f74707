//go:build linux || darwin

package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// The holder cannot reach the server any more: its command, which ignores
// SIGTERM, is dead before the next one starts.
func TestCommandIsDeadBeforeTheNextOneStarts(t *testing.T) { // X4
	warned := false
	for rounds := max(suite.Scaled(5), 3); rounds > 0; rounds -= 5 {
		warned = steadyRound(t, min(rounds, 5)) || warned
	}
	if !warned { // on a busy machine one of them may not run between SIGTERM and SIGKILL
		t.Error("no command has received SIGTERM")
	}
}

// steadyRound runs a round with n keys, and reports whether one of the commands has received
// SIGTERM. A lease of 20 s ends 0.4 s early for its holder. A machine that stalls for a
// part of that may keep the holder from running: then the round is repeated, twice at
// most.
func steadyRound(t *testing.T, n int) bool {
	t.Helper()
	for left := 2; ; left-- {
		longest := stalls()
		faults, warned := round(t, n)
		stalled := longest()
		if len(faults) == 0 {
			return warned
		}
		if left == 0 || stalled < 100*time.Millisecond {
			t.Errorf("longest stall of the machine %v:\n%s", stalled, strings.Join(faults, "\n"))
			return warned
		}
		t.Logf("again, because the machine stalled for %v:\n%s", stalled, strings.Join(faults, "\n"))
	}
}

// stalls returns a function that ends the measurement and returns the longest time for
// which this process was late, by its own clock or by the wall clock, which the server
// uses: a virtual machine that is paused misses time on one of them only.
func stalls() (longest func() time.Duration) {
	const pause = 10 * time.Millisecond
	stop, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		late := time.Duration(0)
		for {
			began := time.Now()
			select {
			case <-time.After(pause):
				now := time.Now()
				late = max(late, now.Sub(began)-pause, now.Round(0).Sub(began.Round(0))-pause)
			case <-stop:
				result <- late
				return
			}
		}
	}()
	return func() time.Duration { close(stop); return <-result }
}

// round cuts off the holders of n keys at once. It returns what was wrong, and whether
// one of the commands has received SIGTERM.
func round(t *testing.T, n int) (faults []string, warned bool) {
	t.Helper()
	p, server := newPlace(t), redistest.Start(t, redistest.Options{})
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	proxy := redistest.StartProxy(t, server, nil)
	defer func() { _ = proxy.Close() }()
	holders, next := make([]*script, n), make([]*script, n)
	for i := range holders {
		holders[i] = p.start(fmt.Sprintf("exec k%d --ttl 20s --grace 300ms --url %s -- %s work", i, proxy.URL(), os.Args[0]), p.dir, "1h")
	}
	for i, h := range holders {
		h.runs()
		next[i] = p.start(fmt.Sprintf("exec k%d --wait 1h --ttl 30s --url %s -- %s work", i, server.URL(), os.Args[0]), p.dir, "1ms")
	}
	proxy.Partition()
	for i, h := range holders {
		out, status := h.rest()
		if status != ExitLost {
			fault("holder %d: exit status %d: %s", i, status, out)
		}
		warned = warned || strings.Contains(out, "signal terminated")
		if out, status := next[i].rest(); status != 0 {
			fault("next %d: exit status %d: %s", i, status, out)
		}
	}
	if text := p.broken(); text != "" {
		fault("%s", text)
	}
	return faults, warned
}

func TestSlotIsPreparedAndCleaned(t *testing.T) { // X9
	p := newPlace(t)
	journal := filepath.Join(p.dir, "journal")
	steps := []string{"--init", "echo init $MEGA_RUN_SLOT $MEGA_RUN_LEFT >> " + journal, "--cleanup", "echo cleanup $MEGA_RUN_SLOT $MEGA_RUN_LEFT >> " + journal}
	pool := func(more ...string) *script {
		return p.start("exec k --slots 1 --wait 1h", append(steps[:4:4], more...)...)
	}
	if out, status := pool("--", "sh", "-c", "echo command >> "+journal+"; exit 4").rest(); status != 4 {
		t.Errorf("exit status %d: %s", status, out)
	}
	victim := pool("--", os.Args[0], "work", p.dir, "1h")
	victim.runs()
	if err := victim.Kill(); err != nil { // its holder cleans
		t.Fatal(err)
	}
	if out, status := pool("--", "true").rest(); status != 0 {
		t.Errorf("exit status %d: %s", status, out)
	}
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if want := "cleanup 0 unknown\ninit 0 unknown\ncommand\ncleanup 0 unknown\ninit 0\ncleanup 0\ninit 0\ncleanup 0\n"; string(text) != want {
		t.Errorf("got:\n%swant:\n%s", text, want)
	}
}

func TestFailedInitIsUnavailable(t *testing.T) { // X9
	p := newPlace(t)
	out, status := p.start("exec k --slots 1 --init", "echo broken; exit 9", "--", "echo", "never").rest()
	if status != ExitUnavailable || !strings.Contains(out, "--init: exit status 9") || !strings.Contains(out, "broken") || strings.Contains(out, "never") {
		t.Errorf("exit status %d: %s", status, out)
	}
}

func TestFailedCleanupWithdrawsTheSlot(t *testing.T) { // X9
	p := newPlace(t)
	flag := filepath.Join(p.dir, "used")
	args := []string{"--cleanup", "test ! -e " + flag, "--", "touch", flag}
	out, status := p.start("exec k --slots 1", args...).rest()
	if status != 0 || !strings.Contains(out, "Slot 0 of k: ") {
		t.Errorf("exit status %d: %s", status, out)
	}
	out, status = p.start("exec k --slots 1", args...).rest()
	if status != ExitNotAcquired || !strings.Contains(out, "lock.pool_withdrawn") {
		t.Errorf("exit status %d: %s", status, out)
	}
	for _, action := range []string{"mega lock show k --socket " + p.socket(), "mega lock heal k SLOT --reason TEXT --socket " + p.socket()} {
		if !strings.Contains(out, action) {
			t.Errorf("no action %q in:\n%s", action, out)
		}
	}
	out, status = p.start("ls").rest()
	if want := "  POOL  SIZE  HELD  FREE  DIRTY  RESTING  WITHDRAWN\n  k     1     0     0     0      0        1\n"; status != 0 || !strings.HasSuffix(out, "scope node\n"+want) {
		t.Errorf("exit status %d: %s, want\n%s", status, out, want)
	}
}
