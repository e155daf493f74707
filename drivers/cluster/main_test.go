package cluster

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/megaframework/mega/internal/testkit/subprocess"
)

// busTask is the variable that makes a test binary a worker on the bus.
const busTask = "MEGA_TEST_CLUSTER_BUS"

func TestMain(m *testing.M) {
	runSocketChild()
	subprocess.Main(orders.carryOut)
	if task := os.Getenv(busTask); task != "" {
		os.Exit(busWorker(task))
	}
	flag.Parse()
	manyAtOnce()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/megaframework/mega/internal/testkit/redis.(*Process).run"))
}

// manyAtOnce has many parallel tests for each processor, unless -parallel says
// otherwise: nearly all of the time they wait, for a TTL or for the end of an
// outage. It also gives them more threads: each stands for processes of its own,
// and with the threads of one they would have one process's share of a busy
// machine, and be late all together.
func manyAtOnce() {
	runtime.GOMAXPROCS(max(min(4*runtime.NumCPU(), 32), runtime.GOMAXPROCS(0)))
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(min(8*runtime.NumCPU(), 32)))
	}
}
