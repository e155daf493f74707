package lock_test

import (
	"context"
	"testing"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

func BenchmarkAcquireRelease(b *testing.B) {
	for name, ctx := range map[string]context.Context{"background": context.Background(), "request": b.Context()} {
		b.Run(name, func(b *testing.B) {
			l, err := lock.New(memory.NewLock(), lock.Config{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				lease, err := l.Acquire(ctx, "k")
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Release(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
