//go:build linux || darwin

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/lock"
)

// Two processes of one machine share a socket. Here both are in one program, so
// that the example can show them side by side.
func ExampleDial() {
	dir, err := os.MkdirTemp("", "mega")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	socket := filepath.Join(dir, "cluster.sock")

	first, err := cluster.Dial(ctx, cluster.Config{Socket: socket}) // becomes the hub
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Close(ctx)
	second, err := cluster.Dial(ctx, cluster.Config{Socket: socket})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Close(ctx)

	here, _ := lock.New(first.Lock(), lock.Config{})
	there, _ := lock.New(second.Lock(), lock.Config{})
	lease, err := here.Acquire(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = there.TryAcquire(ctx, "report")
	fmt.Println("busy:", err != nil)
	fmt.Println(lease.Release())

	publisher, _ := bus.New(first.Bus(), bus.Config{})
	subscriber, _ := bus.New(second.Bus(), bus.Config{})
	done := make(chan string)
	_, err = subscriber.Subscribe(ctx, "report.done", func(_ context.Context, m *bus.Msg) error {
		done <- string(m.Data)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(publisher.Publish(ctx, "report.done", []byte("112 pages")))
	fmt.Println(<-done)
	// Output:
	// busy: true
	// <nil>
	// <nil>
	// 112 pages
}
