//go:build linux || darwin

package admin_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

// childEnv makes this test binary a process that holds a lock, in the runtime
// folder that it names.
const childEnv = "MEGA_TEST_ADMIN"

func runChild() {
	dir, isChild := os.LookupEnv(childEnv)
	if !isChild {
		return
	}
	locks, err := lock.New(memory.NewLock(), lock.Config{Identify: admin.Identify})
	if err != nil {
		panic(err)
	}
	lease, err := locks.Acquire(context.Background(), "order:1")
	if err != nil {
		panic(err)
	}
	p := admin.Process{Info: admin.Info{Name: "child", PID: os.Getpid()}, Locks: locks, Log: slog.New(slog.DiscardHandler)}
	if _, err := admin.Open(p, folders(dir)); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("holding\n")
	<-lease.Context().Done()
	_, _ = os.Stdout.WriteString(context.Cause(lease.Context()).Error() + "\n")
	select {}
}

// child is another process, and the lines that it says.
func child(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+dir)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "holding" {
		t.Fatalf("the child said %q", lines.Text())
	}
	return c, lines
}

// What another process keeps in its memory alone is seen and taken away; once it
// is killed nobody finds it, and the next process clears up after it.
func TestMemoryOfAnotherProcessIsOperated(t *testing.T) {
	dir := shortdir.New(t)
	c, lines := child(t, dir)
	found, err := admin.Find(t.Context(), folders(dir), "child")
	if err != nil || len(found) != 1 || found[0].Info.PID != c.Process.Pid {
		t.Fatalf("found %+v, %v; want process %d", found, err, c.Process.Pid)
	}
	client := admin.Dial(found[0].Path)
	list, err := client.Locks(t.Context(), "", 0)
	if err != nil || len(list.Locks) != 1 || list.Locks[0].Key != "order:1" {
		t.Fatalf("locks: %+v, %v", list, err)
	}
	if n, err := client.Release(t.Context(), "order:1", "from outside", admin.Only{}); n != 1 || err != nil {
		t.Fatalf("released %d, %v", n, err)
	}
	if !lines.Scan() || !strings.Contains(lines.Text(), "from outside") {
		t.Errorf("the holder was told %q", lines.Text())
	}

	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if err := client.Get(t.Context(), "/process", nil); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("the dead process: %v", err)
	}
	if found, err := admin.Find(t.Context(), folders(dir), "child"); err != nil || len(found) != 0 {
		t.Errorf("found %+v, %v", found, err)
	}
	p, _ := process(t)
	open(t, p, folders(dir))
	if !missing(found[0].Path) {
		t.Errorf("%s is still there", found[0].Path)
	}
}

// A process that is stopped is alive: its socket stays.
func TestSocketOfAStoppedProcessIsLeftAlone(t *testing.T) {
	dir := shortdir.New(t)
	c, _ := child(t, dir)
	before, err := admin.Find(t.Context(), folders(dir), "child")
	if err != nil || len(before) != 1 {
		t.Fatalf("found %+v, %v", before, err)
	}
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Signal(syscall.SIGCONT) }()
	p, _ := process(t)
	open(t, p, folders(dir))
	if missing(before[0].Path) {
		t.Fatal("it is gone")
	}
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := admin.Dial(before[0].Path).Process(ctx); errors.Is(err, context.DeadlineExceeded) || err != nil {
		t.Errorf("it does not answer again: %v", err)
	}
}

func record(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), method, path, nil))
	return w
}
