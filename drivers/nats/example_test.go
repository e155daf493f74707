package nats_test

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

func ExampleOpenBus() {
	server, err := natstest.New(natstest.Options{}) // a real one, for this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()

	ctx := context.Background()
	d, err := nats.OpenBus(ctx, nats.Config{URL: server.URL(), Prefix: "shop."})
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := bus.New(d, bus.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()

	sold := make(chan string)
	_, err = b.Subscribe(ctx, "product.*.sold", func(_ context.Context, m *bus.Msg) error {
		sold <- m.Subject + " " + string(m.Data)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := b.Publish(ctx, "product.42.sold", []byte("1 piece")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-sold)
	// Output: product.42.sold 1 piece
}
