package locktest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
	"github.com/megaframework/mega/lock/locktest"
)

// A driver of one process gets a table of its own for each case. In a test,
// [locktest.Run] does the same with each case in a subtest, and on fake time if
// the driver can.
func ExampleCheck() {
	var table *memory.Lock
	harness := locktest.Harness{
		Begin: func() error { table = memory.NewLock(); return nil },
		Open:  func() (driver.Driver, error) { return locktest.Share(table, driver.Process)() },
	}
	fmt.Println(locktest.Check(context.Background(), harness, "L11", "L13"))
	// Output: <nil>
}

// The reply to the first acquisition is lost on the way. The caller cannot know
// that it was granted; the front takes it back behind the scenes.
func ExampleFaulty() {
	plan := new(locktest.Plan)
	plan.Add(locktest.Step{Op: locktest.Acquire, Executed: true, Times: 1, Err: errors.New("connection reset")})
	locker, err := lock.New(locktest.Faulty(memory.NewLock(), plan), lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 2 {
		fmt.Println(locker.With(ctx, "product:42", func(context.Context) error { return nil }))
	}
	fmt.Println(plan.Calls(locktest.Acquire) >= 2, locker.Close(ctx))
	// Output:
	// acquire "product:42": lock: backend unavailable: connection reset
	// <nil>
	// true <nil>
}
