package memory_test

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
)

func ExampleNewLock() {
	ctx := context.Background()
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(ctx)

	stock := 3
	err = locks.With(ctx, "product:42", func(context.Context) error {
		stock--
		return nil
	})
	fmt.Println(stock, err)
	fmt.Println("excludes within one", locks.Info().Scope)
	// Output:
	// 2 <nil>
	// excludes within one process
}

func ExampleNewBus() {
	ctx := context.Background()
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()

	_, err = b.Respond(ctx, "price.*", func(context.Context, *bus.Msg) ([]byte, error) {
		return []byte("9.50"), nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := b.Request(ctx, "price.42", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(answer.Data))
	// Output: 9.50
}
