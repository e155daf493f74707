package group_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/internal/group"
)

func TestCloseEndsTheContextAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group.Group
		g.Init()
		var ended atomic.Int32
		for range 3 {
			g.Go(func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(time.Second)
				ended.Add(1)
			})
		}
		if !g.Close(-1) || ended.Load() != 3 {
			t.Errorf("%d goroutines have returned, want 3", ended.Load())
		}
		if !g.Close(0) {
			t.Error("the second Close waits for a goroutine")
		}
	})
}

func TestCloseWaitsForItsGraceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group.Group
		g.Init()
		release := make(chan struct{})
		g.Go(func(context.Context) { <-release })
		began := time.Now()
		if g.Close(time.Second) || time.Since(began) != time.Second {
			t.Errorf("Close has returned after %v", time.Since(began))
		}
		close(release)
		if !g.Close(-1) {
			t.Error("a goroutine is left")
		}
	})
}

func TestNothingStartsAfterClose(t *testing.T) {
	var g group.Group
	g.Init()
	if !g.Begin() {
		t.Fatal("Begin is refused before Close")
	}
	g.Done()
	g.Close(-1)
	if g.Begin() || g.Go(func(context.Context) { t.Error("it runs") }) {
		t.Error("a goroutine is accepted after Close")
	}
}
