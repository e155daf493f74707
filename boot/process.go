package boot

import (
	"context"

	goredis "github.com/redis/go-redis/v9"
)

// OwnProcess is what a program does once, when the process is its own: it
// keeps client libraries from writing to standard error by themselves. What
// they would say comes back as errors, and is told once, by whoever asked.
func OwnProcess() { goredis.SetLogger(muted{}) }

type muted struct{}

func (muted) Printf(context.Context, string, ...any) {}
