package bus_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
)

// An operation is one message published and handled: at the end all are, and
// none was dropped.
func BenchmarkPublishToOneSubscriber(b *testing.B) {
	benchmarkPublish(b, 1)
}

func BenchmarkPublishToFourSubscribers(b *testing.B) {
	benchmarkPublish(b, 4)
}

func benchmarkPublish(b *testing.B, subscribers int) {
	b.Helper()
	ctx := context.Background()
	mb, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer mb.Close()
	handled := make([]struct {
		n atomic.Int64
		_ [56]byte
	}, subscribers)
	for i := range handled {
		if _, err := mb.Subscribe(ctx, "orders.created", func(context.Context, *bus.Msg) error {
			handled[i].n.Add(1)
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	slowest := func() int64 {
		n := handled[0].n.Load()
		for i := range handled {
			n = min(n, handled[i].n.Load())
		}
		return n
	}
	data := make([]byte, 16)
	b.ReportAllocs()
	published := int64(0)
	for b.Loop() {
		if err := mb.Publish(ctx, "orders.created", data); err != nil {
			b.Fatal(err)
		}
		published++
		if published%256 == 0 {
			for published-slowest() > 1024 {
				runtime.Gosched()
			}
		}
	}
	for slowest() < published {
		runtime.Gosched()
	}
}

// An operation is one subscription that begins and is drained, among many others.
func BenchmarkDrainAmongManySubscriptions(b *testing.B) {
	ctx := context.Background()
	mb, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer mb.Close()
	subscribe := func() *bus.Sub {
		s, err := mb.Subscribe(ctx, "orders.created", func(context.Context, *bus.Msg) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	const others = 100_000
	for i := range others {
		if _, err := mb.Subscribe(ctx, "orders."+strconv.Itoa(i), func(context.Context, *bus.Msg) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := subscribe().Drain(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	ctx := context.Background()
	mb, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer mb.Close()
	answer := []byte("ok")
	if _, err := mb.Respond(ctx, "stock.level", func(context.Context, *bus.Msg) ([]byte, error) { return answer, nil }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := mb.Request(ctx, "stock.level", nil); err != nil {
			b.Fatal(err)
		}
	}
}
