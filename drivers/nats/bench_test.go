package nats_test

import (
	"context"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// An operation is one event on its way to a server in another process, which
// has confirmed all of them at the end.
func BenchmarkPublish(b *testing.B) { benchmarkPublish(b) }

func BenchmarkPublishWithHeader(b *testing.B) { benchmarkPublish(b, bus.Header("Tenant", "acme")) }

func benchmarkPublish(b *testing.B, opts ...bus.PubOption) {
	b.Helper()
	ctx := context.Background()
	mb := openBench(b, natstest.StartProcess(b).URL())
	data := make([]byte, 128)
	b.ReportAllocs()
	for b.Loop() {
		if err := mb.Publish(ctx, "product.sold", data, opts...); err != nil {
			b.Fatal(err)
		}
	}
	if err := mb.Flush(ctx); err != nil {
		b.Fatal(err)
	}
}

// The same by the client alone, to compare with.
func BenchmarkClientPublish(b *testing.B) { benchmarkClient(b, nil) }

func BenchmarkClientPublishWithHeader(b *testing.B) {
	benchmarkClient(b, natsgo.Header{"Tenant": {"acme"}})
}

func benchmarkClient(b *testing.B, h natsgo.Header) {
	b.Helper()
	conn, err := natsgo.Connect(natstest.StartProcess(b).URL())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	data := make([]byte, 128)
	b.ReportAllocs()
	for b.Loop() {
		if err := conn.PublishMsg(&natsgo.Msg{Subject: "ev.product.sold", Header: h, Data: data}); err != nil {
			b.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		b.Fatal(err)
	}
}

// An operation is a request and its answer, which another connection gives.
func BenchmarkRequest(b *testing.B) {
	ctx := context.Background()
	url := natstest.StartProcess(b).URL()
	asking, answering := openBench(b, url), openBench(b, url)
	data := make([]byte, 128)
	_, err := answering.Respond(ctx, "stock.get", func(context.Context, *bus.Msg) ([]byte, error) { return data, nil })
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := asking.Request(ctx, "stock.get", data); err != nil {
			b.Fatal(err)
		}
	}
}

func openBench(b *testing.B, url string) *bus.Bus {
	b.Helper()
	d, err := nats.OpenBus(context.Background(), nats.Config{URL: url})
	if err != nil {
		b.Fatal(err)
	}
	opened, err := bus.New(d, bus.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = opened.Close() })
	return opened
}
