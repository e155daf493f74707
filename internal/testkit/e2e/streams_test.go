//go:build linux || darwin

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// follow reads a response of path to its end. begun is called when the response
// has begun.
func follow(t *testing.T, addr, path string, begun func()) {
	t.Helper()
	defer begun()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		t.Error(err)
		return
	}
	lines := bufio.NewReader(conn)
	w, err := http.ReadResponse(lines, nil)
	if err != nil {
		t.Error(err)
		return
	}
	begun()
	from := io.Reader(lines)
	if w.StatusCode == http.StatusOK {
		from = w.Body
	}
	if _, err := io.Copy(io.Discard, from); err != nil {
		t.Errorf("%s does not end in order: %v", path, err)
	}
}

// followAll opens streams and hijacked connections, and returns a function that
// waits for their end.
func followAll(t *testing.T, addr string) (wait func()) {
	t.Helper()
	var begun, ended sync.WaitGroup
	for range 4 {
		for _, path := range []string{"/sse", "/hijack"} {
			begun.Add(1)
			ended.Go(func() { follow(t, addr, path, sync.OnceFunc(begun.Done)) })
		}
	}
	begun.Wait()
	return ended.Wait
}

// Streams and hijacked connections end in order, long before the budget, with a
// replaced worker and with the program.
func TestStreamsEndInOrderWithTheirProcess(t *testing.T) {
	for _, workers := range []string{"1", "2"} {
		c := startWorkers(t, "streams", workers, "MEGA_LOG_LEVEL=info", "MEGA_SHUTDOWN_TIMEOUT=50s")
		addr := c.await(t, "boot.report", 1)[0].address()
		c.follow()
		if workers != "1" {
			wait := followAll(t, addr)
			c.signal(t, syscall.SIGUSR2)
			wait()
			c.eventually(t, "worker restart finished", 1)
		}
		wait := followAll(t, addr)
		began := time.Now()
		c.signal(t, syscall.SIGTERM)
		wait()
		if status := c.end(t); status != 0 || time.Since(began) > 40*time.Second {
			t.Errorf("exit status %d after %v:\n%s", status, time.Since(began), c)
		}
	}
}
