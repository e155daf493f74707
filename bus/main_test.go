package bus_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBus(tb testing.TB, c bus.Config) *bus.Bus {
	tb.Helper()
	b, err := bus.New(memory.NewBus(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

func subscribe(tb testing.TB, b *bus.Bus, pattern string, h bus.Handler, opts ...bus.SubOption) *bus.Sub {
	tb.Helper()
	s, err := b.Subscribe(context.Background(), pattern, h, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func respond(tb testing.TB, b *bus.Bus, pattern string, r bus.Responder, opts ...bus.SubOption) *bus.Sub {
	tb.Helper()
	s, err := b.Respond(context.Background(), pattern, r, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func publish(tb testing.TB, b *bus.Bus, subject, data string, opts ...bus.PubOption) {
	tb.Helper()
	if err := b.Publish(context.Background(), subject, []byte(data), opts...); err != nil {
		tb.Fatal(err)
	}
}

func memoryBus() driver.Driver { return memory.NewBus() }
