//go:build linux

package e2e_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// orphans starts a program whose workers have an address and are slow to leave it,
// kills its supervisor, stops the workers, and returns the address and a function
// that continues them.
func orphans(t *testing.T) (addr string, goOn func()) {
	t.Helper()
	addr = redistest.FreeAddr(t)
	c := startWorkers(t, "clinging", "2", "CLING=1", "MEGA_APPS_MAIN_ADDR="+addr)
	var workers []int
	for range 2 {
		_, text, _ := strings.Cut(c.until(t, "clinging "), "clinging ")
		pid, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		workers = append(workers, pid)
	}
	signal := func(s syscall.Signal) {
		for _, pid := range workers {
			if err := redistest.Signal(pid, s); err != nil {
				t.Error(err)
			}
		}
	}
	signal(syscall.SIGSTOP) // before their supervisor ends: they leave within a second
	kill(t, c.cmd.Process.Pid)
	if _, err := c.cmd.Process.Wait(); err != nil { // its end continues the workers
		t.Fatal(err)
	}
	signal(syscall.SIGSTOP)
	goOn = sync.OnceFunc(func() { signal(syscall.SIGCONT) })
	t.Cleanup(func() {
		goOn()
		for range c.lines { // until the last worker has ended
		}
		_ = c.cmd.Wait()
	})
	return addr, goOn
}

func TestRestartAfterTheDeathOfTheSupervisorWaitsForTheAddress(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		addr, goOn := orphans(t)
		probes := redistest.FreeAddr(t)
		c := startWorkers(t, "clinging", workers, "MEGA_APPS_MAIN_ADDR="+addr, "MEGA_BOOT_WAIT_FOR=50s", "MEGA_OPS_ADDR="+probes)
		c.await(t, "waiting for an address", 1)
		w := watched{c, "http://" + probes}
		late := time.AfterFunc(20*time.Second, goOn)
		for path, want := range map[string]int{"/livez": 200, "/startupz": 503, "/readyz": 503, "/ops/locks": 503} {
			if status, _, body := w.see(t, path); status != want {
				t.Errorf("%s workers: while it waits, %s answers %d %s, want %d", workers, path, status, body, want)
			}
		}
		if !late.Stop() {
			t.Errorf("%s workers: the probes did not answer while it waited", workers)
		}
		if workers != "1" {
			c.signal(t, syscall.SIGUSR2)
		}
		goOn()
		c.await(t, "boot.report", 1)
		if len(c.records("waiting for an address")) != 1 {
			t.Errorf("%s workers: it did not wait once:\n%s", workers, c)
		}
		if workers != "1" {
			c.await(t, "worker restart finished", 1)
		}
		c.signal(t, syscall.SIGTERM)
		if status := c.end(t); status != 0 {
			t.Errorf("exit status %d:\n%s", status, c)
		}
	}
}

func TestPanelNamesTheWorkerThatHasTheAddress(t *testing.T) {
	taken, _ := orphans(t)
	c := startWorkers(t, "clinging", "2", "MEGA_APPS_MAIN_ADDR="+taken, "MEGA_BOOT_WAIT_FOR=0s")
	if status := c.end(t); status != 69 || !strings.Contains(c.String(), "of this program, whose supervisor has ended") || !strings.Contains(c.String(), "kill -KILL ") {
		t.Errorf("exit status %d:\n%s", status, c)
	}
	addr, probes := redistest.FreeAddr(t), redistest.FreeAddr(t)
	first := startWorkers(t, "clinging", "2", "MEGA_APPS_MAIN_ADDR="+addr, "MEGA_OPS_ADDR="+probes)
	first.await(t, "boot.report", 1)
	for _, ops := range []string{"127.0.0.1:0", probes} {
		c = startWorkers(t, "clinging", "2", "MEGA_APPS_MAIN_ADDR="+addr, "MEGA_BOOT_WAIT_FOR=50s", "MEGA_OPS_ADDR="+ops)
		if status := c.end(t); status != 69 || !strings.Contains(c.String(), "which runs already") || !strings.Contains(c.String(), "kill "+strconv.Itoa(first.cmd.Process.Pid)) {
			t.Errorf("ops.addr %s: exit status %d:\n%s", ops, status, c)
		}
	}
	beside := strings.Replace(addr, "127.0.0.1", "127.0.0.2", 1)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", beside)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c = startWorkers(t, "clinging", "2", "MEGA_APPS_MAIN_ADDR="+beside, "MEGA_BOOT_WAIT_FOR=50s")
	if status := c.end(t); status != 69 || !strings.Contains(c.String(), "Another process uses the address "+beside) {
		t.Errorf("a worker has the port at another address: exit status %d:\n%s", status, c)
	}
	first.signal(t, syscall.SIGTERM)
	if status := first.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, first)
	}
}

// The supervisor's executable is then at another path than that of its workers.
func TestPanelNamesTheSupervisorWhoseFolderWasReplaced(t *testing.T) {
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "release")
	program := filepath.Join(dir, "program")
	install := func() {
		t.Helper()
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(program, text, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	install()
	addr := redistest.FreeAddr(t)
	first := startProgram(t, program, "clinging", workersEnviron("2", "MEGA_APPS_MAIN_ADDR="+addr)...)
	first.await(t, "boot.report", 1)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	install()
	first.signal(t, syscall.SIGUSR2)
	first.await(t, "worker restart finished", 1)
	c := startProgram(t, program, "clinging", workersEnviron("2", "MEGA_APPS_MAIN_ADDR="+addr, "MEGA_BOOT_WAIT_FOR=0s")...)
	if status := c.end(t); status != 69 || !strings.Contains(c.String(), "which runs already") || !strings.Contains(c.String(), "kill "+strconv.Itoa(first.cmd.Process.Pid)) {
		t.Errorf("exit status %d:\n%s", status, c)
	}
	first.signal(t, syscall.SIGTERM)
	if status := first.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, first)
	}
}
