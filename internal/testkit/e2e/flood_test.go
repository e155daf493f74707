//go:build linux || darwin

package e2e_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childDescriptors, in the environment, is how many descriptors a program may have.
const childDescriptors = "CHILD_TEST_NOFILE"

func limitDescriptors() {
	if n, err := strconv.ParseUint(os.Getenv(childDescriptors), 10, 64); err == nil {
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
	}
}

const few, flood = 100, 150

// flooded opens more connections than the program may have, and sends text on each.
func flooded(t *testing.T, addr, text string) (all []net.Conn) {
	t.Helper()
	for range flood {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprint(conn, text); err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	return all
}

// Clients that hold all connections of an app do not keep operators away.
func TestOpsListenerAnswersWhileAnAppIsFlooded(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		c := startWorkers(t, "waiting", workers, "MEGA_APPS_MAIN_TIMEOUT=0s", fmt.Sprintf("%s=%d", childDescriptors, few), "MEGA_LOG_LEVEL=info")
		report := c.await(t, "boot.report", 1)[0]
		clients := flooded(t, report.address(), "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
		c.await(t, "listener full", 1)
		asks := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		for range 3 {
			for _, page := range []string{"/livez", "/readyz", "/metrics", "/ops/locks"} {
				w, err := asks.Get(report.Report.Ops + page)
				if err != nil {
					t.Fatal(err)
				}
				_ = w.Body.Close()
				if w.StatusCode != http.StatusOK {
					t.Errorf("%s workers: %s: %s", workers, page, w.Status)
				}
			}
		}
		for _, conn := range clients {
			_ = conn.Close()
		}
		w, err := asks.Get("http://" + report.address())
		if err != nil {
			t.Fatalf("after the flood: %v", err)
		}
		_ = w.Body.Close()
		c.signal(t, syscall.SIGTERM)
		if status := c.end(t); status != 0 {
			t.Errorf("exit status %d:\n%s", status, c)
		}
	}
}

// Connections that are kept alive without a request make room for new ones.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	c := startWorkers(t, "settings", "1", fmt.Sprintf("%s=%d", childDescriptors, few))
	report := c.await(t, "boot.report", 1)[0]
	c.follow()
	for i, conn := range flooded(t, report.address(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n") {
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		w, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		_ = w.Body.Close()
	}
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// Handlers that use up the descriptors of the process do not keep operators
// away.
func TestOpsListenerAnswersWithoutAFreeDescriptor(t *testing.T) {
	c := startWorkers(t, "hoarding", "1", fmt.Sprintf("%s=%d", childDescriptors, few), "MEGA_APPS_MAIN_TIMEOUT=0s")
	report := c.await(t, "boot.report", 1)[0]
	client, err := net.Dial("tcp", report.address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c.until(t, "no descriptor left")
	silent, err := net.Dial("tcp", report.Report.Ops[len("http://"):]) // uses one spare descriptor
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	asks := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 10 {
		for _, page := range []string{"/livez", "/readyz", "/ops/locks"} {
			w, err := asks.Get(report.Report.Ops + page)
			if err != nil {
				t.Fatal(err)
			}
			_ = w.Body.Close()
			if w.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", page, w.Status)
			}
		}
	}
	_ = client.Close()
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
}

// Wherever the start of a program with workers lacks a descriptor, the panel advises
// to raise the limit.
func TestPanelOfAProgramShortOfDescriptorsAdvisesToRaiseTheLimit(t *testing.T) {
	for n := 10; n < few; n++ {
		c := startWorkers(t, "pair", "2", "MEGA_APPS_ADMIN_ADDR=127.0.0.1:0", fmt.Sprintf("%s=%d", childDescriptors, n))
		status, text := c.end(t), c.String()
		if status == 0 || !strings.Contains(text, "too many open files") || !strings.Contains(text, "ulimit -n 1024") {
			t.Errorf("with %d descriptors the exit status is %d:\n%s", n, status, text)
		}
		if strings.Contains(text, "(cluster.worker_died)") {
			return
		}
	}
	t.Error("the program never got as far as its workers")
}
