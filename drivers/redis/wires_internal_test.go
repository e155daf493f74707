package redis

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
)

// Masters come and go for as long as a process lives (L18).
func TestADepartedMasterLeavesNothing(t *testing.T) {
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer client.Close()
	c := newCluster(client)
	var gone []weak.Pointer[wire.Wire]
	for range 10 {
		master := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
		w, _, err := c.wire(master, "k")
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, weak.Make(w))
		c.forget(master)
		_ = master.Close()
	}
	left := func() (n int) {
		runtime.GC()
		for _, w := range gone {
			if w.Value() != nil {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(10 * time.Second); left() > 1; time.Sleep(time.Millisecond) { // the stack may have one
		if time.Now().After(end) {
			t.Fatalf("%d wires of 10 masters are left", left())
		}
	}
	c.close()
	c.wait()
}

// A failover to a new address has no call find the old master closed (L18).
func TestAReplacedMasterLeavesNothing(t *testing.T) {
	var addr atomic.Value
	addr.Store("")
	client := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs:  []string{"192.0.2.1:1"},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
		ClusterSlots: func(context.Context) ([]goredis.ClusterSlot, error) {
			return []goredis.ClusterSlot{{Start: 0, End: slotCount - 1, Nodes: []goredis.ClusterNode{{Addr: addr.Load().(string)}}}}, nil
		},
	})
	defer client.Close()
	c := newCluster(client)
	for i := range 4 {
		addr.Store(fmt.Sprintf("192.0.2.%d:1", i+1))
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			client.ReloadState(t.Context())
			if m, err := client.MasterForKey(t.Context(), "k"); err == nil && m.Options().Addr == addr.Load() {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the client does not know the new master")
			}
		}
		_, _, _ = c.do(t.Context(), "k", []string{"get", "k"}, time.Second)
	}
	if n := len(c.wires); n > 2 {
		t.Errorf("%d wires are left, want that of the last master, and that of redirections", n)
	}
	c.close()
	c.wait()
}
