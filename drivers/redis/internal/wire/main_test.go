package wire

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(muted{}) // the faults are the tests' own
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/megaframework/mega/internal/testkit/redis.(*Process).run"))
}

type muted struct{}

func (muted) Printf(context.Context, string, ...any) {}
