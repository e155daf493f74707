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

func BenchmarkWithAll(b *testing.B) {
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	fn := func(context.Context) error { return nil }
	b.Run("1 key by With", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := l.With(b.Context(), "a", fn); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("3 keys", func(b *testing.B) {
		keys := []string{"a", "b", "c"}
		b.ReportAllocs()
		for b.Loop() {
			if err := l.WithAll(b.Context(), keys, fn); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkWithSlot(b *testing.B) {
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	fn := func(context.Context) error { return nil }
	b.Run("a plain lock", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := l.With(b.Context(), "a", fn); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("a pool", func(b *testing.B) {
		work := func(context.Context, *lock.Slot) error { return nil }
		pool := &lock.Pool{Key: "sandbox", Size: 10, Init: work, Cleanup: work}
		b.ReportAllocs()
		for b.Loop() {
			if err := l.WithSlot(b.Context(), pool, work); err != nil {
				b.Fatal(err)
			}
		}
	})
}
