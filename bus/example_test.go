package bus_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
)

func Example() {
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()

	_, err = b.Subscribe(ctx, "orders.*.created", func(ctx context.Context, m *bus.Msg) error {
		fmt.Printf("%s: %s\n", m.Subject, m.Data)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(
		b.Publish(ctx, "orders.eu.created", []byte("42")),
		b.Drain(ctx), // runs what is queued
	)
	fmt.Println(err)
	// Output:
	// orders.eu.created: 42
	// <nil>
}

func ExampleTopic() {
	type Sale struct {
		Product  string
		Quantity int
	}
	const Sold = bus.Topic[Sale]("product.sold")

	b, _ := bus.New(memory.NewBus(), bus.Config{})
	ctx := context.Background()
	_, err := Sold.Subscribe(ctx, b, func(_ context.Context, s Sale) error {
		fmt.Println("sold", s.Quantity, s.Product)
		return nil
	}, bus.Group("ledger"))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(Sold.Publish(ctx, b, Sale{"bread", 2}), b.Drain(ctx))
	fmt.Println(err)
	// Output:
	// sold 2 bread
	// <nil>
}

func ExampleCall() {
	b, _ := bus.New(memory.NewBus(), bus.Config{})
	ctx := context.Background()
	defer b.Close()

	stock := map[string]int{"bread": 3}
	_, err := bus.Answer(ctx, b, "stock.level", func(_ context.Context, product string) (int, error) {
		n, ok := stock[product]
		if !ok {
			return 0, &bus.RemoteError{Reason: "stock.unknown", Message: "no such product"}
		}
		return n, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := bus.Call[string, int](ctx, b, "stock.level", "bread")
	fmt.Println(n, err)

	_, err = bus.Call[string, int](ctx, b, "stock.level", "gold")
	if e, ok := errors.AsType[*bus.RemoteError](err); ok {
		fmt.Println(e.Code())
	}
	_, err = bus.Call[string, int](ctx, b, "stock.price", "bread")
	fmt.Println(errors.Is(err, bus.ErrNoResponders))
	// Output:
	// 3 <nil>
	// stock.unknown
	// true
}

func ExampleBus_RequestMany() {
	b, _ := bus.New(memory.NewBus(), bus.Config{})
	ctx := context.Background()
	defer b.Close()

	for _, node := range []string{"one", "two"} {
		// Without a group, every responder answers.
		_, err := b.Respond(ctx, "nodes", func(context.Context, *bus.Msg) ([]byte, error) { return []byte(node), nil }, bus.Group(""))
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	for m, err := range b.RequestMany(ctx, "nodes", nil, bus.Count(2), bus.Stall(time.Second)) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(string(m.Data))
	}
	// Unordered output:
	// one
	// two
}

func ExampleOrderBy() {
	b, _ := bus.New(memory.NewBus(), bus.Config{})
	ctx := context.Background()

	// Eight at once, but those of one account one after the other.
	balance := 0
	_, err := b.Subscribe(ctx, "account.*.moved", func(_ context.Context, m *bus.Msg) error {
		balance = balance*10 + int(m.Data[0]-'0')
		return nil
	}, bus.Concurrency(8), bus.OrderBy(func(m *bus.Msg) string { return m.Subject }))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, digit := range "123" {
		if err := b.Publish(ctx, "account.7.moved", []byte(string(digit))); err != nil {
			fmt.Println(err)
		}
	}
	err = b.Drain(ctx)
	fmt.Println(balance, err)
	// Output: 123 <nil>
}
