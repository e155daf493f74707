//go:build linux || darwin

package listen_test

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	megactx "github.com/megaframework/mega/ctx"
)

// leaveDescriptors leaves n free descriptors to the process until the test ends.
func leaveDescriptors(t *testing.T, n int) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	limit := before
	if n == 0 {
		limit.Cur = 0
	}
	for range n { // the system opens the lowest free ones
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		limit.Cur = uint64(f.Fd()) + 1
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// A drain accepts connections beyond the limit of the listener, and may run out of
// descriptors. Those in the queue then wait until requests in flight have ended.
func TestDrainServesTheQueueAlthoughDescriptorsAreScarce(t *testing.T) {
	const clients = 20
	began := make(chan struct{}, 1)
	s := limited(t, 1, func(r megactx.Router) {
		r.Get("/first", func(c *megactx.Ctx) error {
			return c.SSE(func(s *megactx.Stream) error {
				began <- struct{}{}
				<-s.Done()
				return s.Err()
			})
		})
		r.Get("/", func(c *megactx.Ctx) error {
			<-time.After(50 * time.Millisecond)
			return c.Text(http.StatusOK, "served")
		})
	})
	first, _ := dial(t, s, "GET /first")
	send(t, first, "\r\n")
	<-began
	var queued []*bufio.Reader
	for range clients {
		conn, r := dial(t, s, "GET /")
		send(t, conn, "\r\n")
		queued = append(queued, r)
	}
	leaveDescriptors(t, 2)
	drain(t, s)
	for i, r := range queued {
		w, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("client %d of the queue: %v", i, err)
		}
		if w.StatusCode != http.StatusOK {
			t.Errorf("client %d of the queue: %s", i, w.Status)
		}
	}
}

// A request that occupies the last descriptor does not delay the shutdown beyond its
// budget.
func TestDrainWaitsForDescriptorsNoLongerThanItsBudget(t *testing.T) {
	began, end := make(chan struct{}, 1), make(chan struct{})
	s := limited(t, 1, func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			began <- struct{}{}
			<-end
			return nil
		})
	})
	t.Cleanup(func() { close(end) })
	for range 2 {
		conn, _ := dial(t, s, "GET /")
		send(t, conn, "\r\n")
	}
	<-began
	leaveDescriptors(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- s.Drain(ctx) }()
	select {
	case err := <-over:
		if err == nil || !strings.Contains(err.Error(), "GET /") {
			t.Errorf("the drain returns %v", err)
		}
	case <-time.After(budget):
		t.Error("the drain does not end")
	}
}
