package redis_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/subprocess"
)

// shared is the server of the tests that leave a server as they found it.
var shared *redistest.Server

func TestMain(m *testing.M) {
	goredis.SetLogger(muted{}) // the faults are the tests' own
	subprocess.Main(orders.carryOut)
	flag.Parse()
	manyAtOnce()
	os.Exit(run(m))
}

// manyAtOnce has several parallel tests for each processor, unless -parallel says
// otherwise: nearly all of the time they wait, for a TTL or for the end of an
// outage. It also gives them as many threads. Each test stands for processes of
// its own; with the threads of one process they would have one process's share
// of a busy machine, and be late all together.
func manyAtOnce() {
	n := min(3*runtime.NumCPU(), 32)
	runtime.GOMAXPROCS(max(n, runtime.GOMAXPROCS(0)))
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}

type muted struct{}

func (muted) Printf(context.Context, string, ...any) {}

func run(m *testing.M) int {
	s, err := redistest.New(redistest.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = s.Close() }()
	shared = s
	code := m.Run()
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/megaframework/mega/internal/testkit/redis.(*Process).run")); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
