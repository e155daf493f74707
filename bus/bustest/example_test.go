package bustest_test

import (
	"context"
	"fmt"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/memory"
)

// In a test, [bustest.Run] does the same with each case in a subtest, and on
// fake time if the driver can.
func ExampleCheck() {
	harness := bustest.Harness{
		Open: func() (driver.Driver, error) { return memory.NewBus(), nil },
	}
	fmt.Println(bustest.Check(context.Background(), harness, "S2", "S19"))
	// Output: <nil>
}
