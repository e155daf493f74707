package cluster

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// busTask is the variable that makes a test binary a worker on the bus.
const busTask = "MEGA_TEST_CLUSTER_BUS"

func TestMain(m *testing.M) {
	runSocketChild()
	if task := os.Getenv(busTask); task != "" {
		os.Exit(busWorker(task))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/megaframework/mega/internal/redistest.(*Process).run"))
}
