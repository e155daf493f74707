package redis_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/megaframework/mega/internal/redistest"
)

// shared is the server of the tests that leave a server as they found it.
var shared *redistest.Server

func TestMain(m *testing.M) {
	goredis.SetLogger(muted{}) // the faults are the tests' own
	runChild()
	os.Exit(run(m))
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
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/megaframework/mega/internal/redistest.(*Process).run")); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
