package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

type fleet struct{ driver.Driver }

func (f fleet) Info() driver.Info           { i := f.Driver.Info(); i.Scope = driver.Fleet; return i }
func (f fleet) Close(context.Context) error { return nil }

func TestEveryoneGetsTheirTurn(t *testing.T) {
	for _, wide := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := driver.Driver(memory.NewLock())
			var lockers []*lock.Locker
			for range 3 {
				dd := d
				if wide {
					dd = fleet{d}
				}
				l, err := lock.New(dd, lock.Config{})
				if err != nil {
					t.Fatal(err)
				}
				lockers = append(lockers, l)
			}
			var n int
			var inside atomic.Int32
			var wg sync.WaitGroup
			for _, l := range lockers {
				for range 50 {
					wg.Go(func() {
						err := l.With(t.Context(), "k", func(ctx context.Context) error {
							if inside.Add(1) != 1 {
								t.Error("two inside")
							}
							n++
							time.Sleep(time.Millisecond)
							inside.Add(-1)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
			}
			wg.Wait()
			if n != 150 {
				t.Errorf("n=%d", n)
			}
			st := lockers[0].Stats()
			t.Logf("%+v", st)
			lease, err := lockers[0].Acquire(t.Context(), "long")
			if err != nil {
				t.Fatal(err)
			}
			_, err = lockers[1].Acquire(t.Context(), "long", lock.Wait(time.Minute))
			t.Log(err)
			if !errors.Is(err, lock.ErrNotAcquired) {
				t.Error(err)
			}
			if err := lease.Context().Err(); err != nil {
				t.Error(err, context.Cause(lease.Context()))
			}
			ctx := lease.Context()
			ctx.Done()
			lockers[1].ForceRelease(t.Context(), "long", "because")
			<-ctx.Done()
			t.Log(context.Cause(ctx))
			t.Log(lease.Release())
			for _, l := range lockers {
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func BenchmarkMemory(b *testing.B) {
	l, _ := lock.New(memory.NewLock(), lock.Config{})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		x, err := l.Acquire(ctx, "k")
		if err != nil {
			b.Fatal(err)
		}
		x.Release()
	}
}
