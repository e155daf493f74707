package hub

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	limits "github.com/megaframework/mega/limit/driver"
	locks "github.com/megaframework/mega/lock/driver"
)

// unserved returns a client that h has counted, and whose frames nobody reads.
func unserved(t *testing.T, h *Hub) *Client {
	t.Helper()
	here, there := net.Pipe()
	c := newClient(h, here, "unserved")
	t.Cleanup(func() { c.line.Close(); _ = there.Close() })
	if err := h.enter(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// All clients together have 512 MiB for the messages that wait, each at least 1 MiB.
func TestClientsShareTheBacklog(t *testing.T) {
	h := New(Config{Clients: 600})
	all := make([]*Client, 0, 600)
	for n := range cap(all) {
		all = append(all, unserved(t, h))
		if got, want := h.backlog.Load(), int64(min(64<<20, max(512<<20/(n+1), 1<<20))); got != want {
			t.Fatalf("each of %d clients has %d bytes, want %d", n+1, got, want)
		}
	}
	for _, c := range all[8:] {
		h.leave(c)
	}
	if got := h.backlog.Load(); got != 64<<20 {
		t.Errorf("each of 8 clients has %d bytes", got)
	}
}

// A connection that ends before its hello makes no room for one client more.
func TestAConnectionWithoutAHelloIsNoClient(t *testing.T) {
	h := New(Config{Clients: 1})
	if err := h.admit(); err != nil {
		t.Fatal(err)
	}
	h.leave(unserved(t, h))
	if err := h.admit(); !errors.Is(err, errTooMany) {
		t.Errorf("a second client: %v", err)
	}
}

// A shutdown whose context has no deadline ends although a client still reads.
func TestAShutdownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		c := unserved(t, h)
		c.greeted = true
		ctx, cancel := context.WithCancel(t.Context())
		moving := make(chan struct{})
		go func() {
			defer close(moving)
			for ctx.Err() == nil {
				c.queue(protocol.Begin(protocol.TypeSynced).Uint(1))
				time.Sleep(time.Second)
			}
		}()
		start := time.Now()
		h.drain(t.Context())
		if took := time.Since(start); took != drainBound {
			t.Errorf("it took %v, want %v", took, drainBound)
		}
		cancel()
		<-moving
	})
}

// A hub that shuts down waits for what a client has to be sent, its gaps included (S4, S21).
func TestAShutdownWaitsForTheGapsOfAClient(t *testing.T) {
	c := unserved(t, New(Config{}))
	c.lasts.Store(1)
	if n := c.pendingWork(1); n != 0 {
		t.Errorf("%d pieces of work are left, want none", n)
	}
	for what, add := range map[string]func(){"another round": func() { c.lasts.Store(0) }, "gaps": func() { c.bus.full.Store(true) }} {
		before := c.pendingWork(1)
		if add(); c.pendingWork(1) <= before {
			t.Errorf("%s are no work", what)
		}
	}
}

// The tables of a closed hub have no timers.
func TestAClosedHubHasClosedItsTables(t *testing.T) {
	h := New(Config{})
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.locks.table.Inspect("k"); !errors.Is(err, locks.ErrClosed) {
		t.Errorf("the locks: %v", err)
	}
	if _, err := h.limits.table.Inspect("k", nil); !errors.Is(err, limits.ErrClosed) {
		t.Errorf("the limits: %v", err)
	}
}
