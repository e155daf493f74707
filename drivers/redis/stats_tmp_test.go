package redis_test

import (
	"fmt"
	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"
	"testing"
	"time"
)

func BenchmarkZStats(b *testing.B) {
	d := openShared(b)
	o, _ := goredis.ParseURL(shared.URL())
	client := goredis.NewClient(o)
	defer client.Close()
	peer := redislock.New(client)
	show := func(n string) {
		m, _ := shared.Info("commandstats")
		fmt.Println(n)
		for k, v := range m {
			fmt.Println("  ", k, v)
		}
	}
	for _, what := range []string{"acq", "rel", "rlacq", "rlrel"} {
		_ = shared.ResetCommands()
		for i := 0; i < 20000; i++ {
			if what[0] == 'r' && what[1] == 'l' {
				if what == "rlrel" {
					l, _ := peer.Obtain(b.Context(), "pz", 10*time.Second, nil)
					_ = l.Release(b.Context())
				} else {
					_, _ = peer.Obtain(b.Context(), fmt.Sprint("pz", i), 10*time.Second, nil)
				}
			} else {
				if what == "rel" {
					g, _ := d.Acquire(b.Context(), request("zz"))
					_ = d.Release(b.Context(), g)
				} else {
					_, _ = d.Acquire(b.Context(), request(fmt.Sprint("zz", i)))
				}
			}
		}
		show(what)
	}
}
