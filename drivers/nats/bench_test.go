package nats_test

import (
	"context"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/natstest"
)

// An operation is one event on its way to a server in another process, which
// has confirmed all of them at the end.
func BenchmarkPublish(b *testing.B) { benchmarkPublish(b) }

func BenchmarkPublishWithHeader(b *testing.B) { benchmarkPublish(b, bus.Header("Tenant", "acme")) }

func benchmarkPublish(b *testing.B, opts ...bus.PubOption) {
	b.Helper()
	ctx := context.Background()
	d, err := nats.OpenBus(ctx, nats.Config{URL: natstest.StartProcess(b).URL()})
	if err != nil {
		b.Fatal(err)
	}
	mb, err := bus.New(d, bus.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer mb.Close()
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
