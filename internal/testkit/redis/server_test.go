package redistest_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func TestMain(m *testing.M) {
	runParent()
	goleak.VerifyTestMain(m)
}

func do(t *testing.T, s *redistest.Server, args ...any) any {
	t.Helper()
	v, err := s.Do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestKilledServerComesBackEmptyWithoutPersistence(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	addr := s.Addr()
	do(t, s, "SET", "k", "v")
	must(t, s.Kill())
	if _, err := s.Do("PING"); err == nil {
		t.Fatal("a killed server answered")
	}
	must(t, s.Restart())
	if got := do(t, s, "GET", "k"); got != nil || s.Addr() != addr {
		t.Errorf("after restart at %s: k = %v, want nil at %s", s.Addr(), got, addr)
	}
}

func TestKilledServerKeepsAnsweredWritesUnderAOF(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
	for i := range 100 {
		do(t, s, "SET", fmt.Sprint("k", i), i)
	}
	must(t, s.Kill())
	must(t, s.Restart())
	if got := do(t, s, "DBSIZE"); got != int64(100) {
		t.Errorf("after kill and restart: %v keys, want 100", got)
	}
}

func TestPausedServerKeepsConnectionsAndAnswersLater(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	must(t, s.Pause())
	answered := make(chan error, 1)
	go func() {
		_, err := s.Do("PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	must(t, s.Continue())
	must(t, <-answered)
}

func TestServerReportsItsCommandsAndClients(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Password: "sesame"})
	must(t, s.ResetCommands())
	for range 3 {
		do(t, s, "GET", "k")
	}
	calls, err := s.Commands()
	must(t, err)
	if calls["get"] != 3 {
		t.Errorf("get was counted %d times, want 3: %v", calls["get"], calls)
	}
	clients, err := s.Clients()
	must(t, err)
	if len(clients) != 0 {
		t.Errorf("clients = %v, want none", clients)
	}
	if want := "redis://:sesame@" + s.Addr(); s.URL() != want {
		t.Errorf("URL = %q, want %q", s.URL(), want)
	}
}

func TestErrorAnswersAreReplyErrors(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	do(t, s, "SET", "k", "v")
	_, err := s.Do("LPUSH", "k", "v")
	if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("LPUSH on a string: %v, want WRONGTYPE", err)
	}
}

func TestClosedServerLeavesNothing(t *testing.T) {
	s, err := redistest.New(redistest.Options{})
	must(t, err)
	pid := s.PID()
	must(t, s.Close())
	must(t, s.Close())
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("the folder %s is still there: %v", s.Dir(), err)
	}
	if p, err := os.FindProcess(pid); err == nil && p.Signal(syscall.Signal(0)) == nil {
		t.Errorf("the process %d is still there", pid)
	}
}

func TestMissingServerNamesThePackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := redistest.New(redistest.Options{})
	if err == nil || !strings.Contains(err.Error(), "install the package redis-server") {
		t.Errorf("New without redis-server: %v, want the package's name", err)
	}
}

func TestServerThatCannotStartReturnsTheReason(t *testing.T) {
	_, err := redistest.New(redistest.Options{Config: []string{"no-such-setting 1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("New with a bad line of configuration: %v, want that line", err)
	}
}

func TestFailoverKeepsReplicatedWrites(t *testing.T) {
	s := redistest.StartSentinels(t, 1, redistest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	old, err := s.Master()
	must(t, err)
	do(t, old, "SET", "kept", "v")
	must(t, s.Replicated(ctx))
	must(t, s.Sever())
	do(t, old, "SET", "lost", "v")

	start := time.Now()
	must(t, s.Failover(ctx))
	t.Logf("failover took %v", time.Since(start))
	master, err := s.Master()
	must(t, err)
	if kept, lost := do(t, master, "GET", "kept"), do(t, master, "GET", "lost"); kept != "v" || lost != nil {
		t.Errorf("the new master has kept=%v lost=%v, want v and nil", kept, lost)
	}
	do(t, master, "SET", "new", "v")
}

func TestClusterServesEverySlot(t *testing.T) {
	c := redistest.StartCluster(t, 3, redistest.Options{})
	owners := map[string]bool{}
	for i := range 200 {
		key := fmt.Sprint("k", i)
		for _, s := range c.Servers() {
			if _, err := s.Do("SET", key, "v"); err == nil {
				owners[s.Addr()] = true
			} else if !strings.Contains(err.Error(), "MOVED") {
				t.Errorf("SET %s at %s: %v", key, s.Addr(), err)
			}
		}
	}
	if len(owners) != 3 {
		t.Errorf("200 keys are on %d masters, want 3", len(owners))
	}
}

func TestElectedReplicaLacksWhatCameAfterItWasSevered(t *testing.T) {
	c := redistest.StartCluster(t, 3, redistest.Options{})
	master := c.Servers()[0]
	replica, err := c.AddReplica(master)
	must(t, err)
	must(t, c.Sever(master, replica))
	const key = "{06S}" // in slot 0
	do(t, master, "SET", key, "lost")
	must(t, master.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, c.Promote(ctx, replica))
	waitFor(t, "the new master to serve", func() bool { _, err := replica.Do("SET", key, "v", "NX"); return err == nil })
	if v := do(t, replica, "GET", key); v != "v" {
		t.Errorf("the new master has %v, want v", v)
	}
}

func TestStepClockSetsTheWallClockOfTheServer(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Clock: redistest.CanStepClock()})
	if !redistest.CanStepClock() {
		if err := s.StepClock(time.Hour); err == nil {
			t.Error("a clock that cannot be set was set")
		}
		return
	}
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		if err := s.StepClock(by); err != nil {
			t.Fatal(err)
		}
		sec, err := strconv.ParseInt(do(t, s, "TIME").([]any)[0].(string), 10, 64)
		if off := time.Unix(sec, 0).Sub(time.Now().Add(by)); err != nil || off.Abs() > 10*time.Second {
			t.Errorf("stepped by %v, the server is %v off that, %v", by, off, err)
		}
	}
	do(t, s, "SET", "k", "v", "PX", 60_000)
	if err := s.StepClock(61 * time.Second); err != nil {
		t.Fatal(err)
	}
	if v := do(t, s, "GET", "k"); v != nil {
		t.Errorf("a key that has expired is %v", v)
	}
}
