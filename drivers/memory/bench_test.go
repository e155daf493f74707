package memory_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock/driver"
)

func BenchmarkLockCycle(b *testing.B) {
	d := memory.NewLock()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	r := request("product:42", "token-------------alone")
	b.ReportAllocs()
	for b.Loop() {
		g, err := d.Acquire(ctx, r)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Release(ctx, g); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLockCycleOfManyKeys(b *testing.B) {
	d := memory.NewLock()
	requests := make([]driver.Request, 1024)
	for i := range requests {
		requests[i] = request("product:"+strconv.Itoa(i), strconv.Itoa(i))
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			g, err := d.Acquire(context.Background(), requests[i%len(requests)])
			if err == nil {
				_ = d.Release(context.Background(), g)
			}
		}
	})
}

func BenchmarkLockHandOver(b *testing.B) {
	d := memory.NewLock()
	var last atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := request("product:42", strconv.FormatInt(last.Add(1), 10))
			r.Wait = -1
			g, err := d.Acquire(context.Background(), r)
			if err != nil {
				b.Error(err)
				return
			}
			_ = d.Release(context.Background(), g)
		}
	})
}

func BenchmarkLockPoolOf4096(b *testing.B) {
	d := memory.NewLock()
	r := request("pool", "")
	r.Slots = 4096
	for i := range r.Slots - 1 {
		r.Token = "held-" + strconv.Itoa(i)
		if _, err := d.Acquire(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
	r.Token = "token"
	b.ReportAllocs()
	for b.Loop() {
		g, err := d.Acquire(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		_ = d.Release(b.Context(), g)
	}
}

func request(key, token string) driver.Request {
	return driver.Request{Key: key, Token: token, TTL: 10 * time.Second, Slots: 1, Fences: 1}
}
