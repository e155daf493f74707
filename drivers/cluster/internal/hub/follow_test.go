package hub

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// fileClients returns clients with the same client file, as one process has them that
// connects again.
func fileClients(t *testing.T, h *Hub, n int) (all []*Client) {
	t.Helper()
	for range n {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() })
		c := newClient(h, here, "process")
		t.Cleanup(c.line.Close)
		c.file = "file"
		all = append(all, c)
	}
	return all
}

// The frames of a new connection are handled after those of the earlier one of the
// process (S5).
func TestAConnectionWaitsForTheEarlierOneOfItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		clients := fileClients(t, h, 2)
		earlier, later := clients[0], clients[1]
		if h.succeed(earlier) != nil || h.succeed(later) != earlier {
			t.Fatal("the hub does not know the earlier connection")
		}
		start, over := time.Now(), make(chan struct{})
		go func() { later.follow(earlier); close(over) }()
		synctest.Wait()
		select {
		case <-over:
			t.Error("it has not waited")
		default:
		}
		close(earlier.handled)
		<-over
		if took := time.Since(start); took != 0 || earlier.line.Err() != nil {
			t.Errorf("after %v the earlier connection has ended with %v", took, earlier.line.Err())
		}
		h.leave(earlier)
		if h.files["file"] != later {
			t.Error("the end of the earlier connection has removed the later one")
		}
		if h.leave(later); len(h.files) != 0 {
			t.Errorf("%d connections are left", len(h.files))
		}
	})
}

func TestAnEarlierConnectionThatDoesNotEndIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := fileClients(t, New(Config{}), 2)
		earlier, later := clients[0], clients[1]
		start := time.Now()
		later.follow(earlier)
		if took := time.Since(start); took != time.Second || !errors.Is(earlier.line.Err(), errReplaced) {
			t.Errorf("after %v the earlier connection has ended with %v", took, earlier.line.Err())
		}
	})
}
