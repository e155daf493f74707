package redis

import (
	"runtime"
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
		w, err := c.wire(master)
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
