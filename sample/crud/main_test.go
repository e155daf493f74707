package main

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
)

var oversell = flag.Bool("oversell", false, "take the lock away from the shop that TestBuyers buys from, to see the test fail")

// unguarded, in the environment, makes the test's executable a shop without a
// lock. There is no such switch in the shop itself.
const unguarded = "CRUD_TEST_UNGUARDED"

func TestMain(m *testing.M) {
	if os.Getenv(unguarded) != "" {
		mega.Main(program(withoutLock))
	}
	code := m.Run()
	_ = os.RemoveAll(built) // nothing, if no test needed it
	os.Exit(code)
}

// withoutLock runs at once what has to run alone: each call has a lock of its own.
// A call without any lock would be refused by the store.
func withoutLock() services.Exclusive {
	var calls atomic.Int64
	return func(ctx *mega.Ctx, _ string, fn func(*mega.Ctx) error) error {
		return ctx.Lock.With(fmt.Sprintf("nobody-else:%d:%d", os.Getpid(), calls.Add(1)), fn)
	}
}
