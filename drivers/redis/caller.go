package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/lock/driver"
)

// backend is one server, or a Cluster of them.
type backend interface {
	// do makes one attempt to execute a command at the server that has key.
	// judge can classify its error. again means that the command may have
	// been sent more than once.
	do(ctx context.Context, key string, cmd *goredis.Cmd, limit time.Duration) (again bool, err error)
	// shards groups locks that one script can serve together.
	shards(all []string) [][]string
	// repeats reports whether a command may be sent twice unnoticed.
	repeats() bool
	// together is the number of keys of different locks that one script may
	// use.
	together() int
	close()
	wait()
}

// outcome is the result of a call.
type outcome struct {
	reply any
	sent  time.Time // by driver.Now, before the answered request was sent
	again bool      // the request was sent more than once
}

// loose reports whether a copy of the request may still be on its way.
func (c caller) loose(o outcome) bool { return o.again || c.backend.repeats() }

// request is one call of a script.
type request struct {
	script *script
	key    string // any key of the request
	args   []any  // as for EVALSHA, without the script
}

// on returns a request of a script on the lock with this holder key.
func (s *script) on(holder string, argv ...any) request {
	if s.layout != nil {
		return s.over(append(s.layout.keys(holder), s.layout.mark(holder)), argv...)
	}
	args := make([]any, 4, 4+len(argv))
	args[2], args[3] = one, holder
	return request{script: s, key: holder, args: append(args, argv...)}
}

// over returns a request of a script with these keys.
func (s *script) over(keys []string, argv ...any) request {
	args := make([]any, 3, 3+len(keys)+len(argv))
	args[2] = strconv.Itoa(len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	return request{script: s, key: keys[0], args: append(args, argv...)}
}

// evalsha, eval and one are boxed once, so that building a command does not allocate.
var evalsha, eval, one any = "evalsha", "eval", "1"

// command builds a new command for each attempt: a connection may still use the
// previous one.
func (r request) command(whole bool) *goredis.Cmd {
	args := r.args
	if args[0] != nil {
		args = append([]any(nil), args...)
	}
	args[0], args[1] = evalsha, r.script.sha
	if whole {
		args[0], args[1] = eval, r.script.source
	}
	cmd := goredis.NewCmd(context.Background(), args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// caller calls scripts and repeats calls whose answer may be lost. Every script
// is idempotent by token, so that is safe.
type caller struct{ backend backend }

// run returns the answer of the script, or an error within driver.CallTimeout:
// one that wraps ctx's error, or ErrUnavailable with the cause.
func (c caller) run(ctx context.Context, r request) (outcome, error) {
	return c.send(ctx, r.script.name, r.key, r.command)
}

// send calls do with a command built for each attempt. whole means that the
// server does not know the script by its hash.
func (c caller) send(ctx context.Context, name, key string, build func(whole bool) *goredis.Cmd) (outcome, error) {
	start := time.Now()
	var o outcome
	var last error
	for attempt, whole := 0, false; ; attempt++ {
		limit := driver.CallTimeout - time.Since(start)
		if limit <= 0 {
			return o, tooLate(name, last)
		}
		o.sent = driver.Now()
		cmd := build(whole)
		again, err := c.backend.do(ctx, key, cmd, limit)
		o.again = o.again || again
		switch {
		case err == nil || errors.Is(err, goredis.Nil):
			o.reply = cmd.Val()
			return o, nil
		case ctx.Err() != nil:
			o.again = true
			return o, fmt.Errorf("%s: %w", name, ctx.Err())
		case errors.Is(err, wire.ErrSlow):
			// The deadline of the call has passed, not the deadline of
			// the attempt. The error of an earlier attempt, if any,
			// explains more.
			o.again = true
			return o, tooLate(name, cmp.Or(last, err))
		case errors.Is(err, driver.ErrClosed):
			return o, err
		}
		last = err
		switch v := judge(err); {
		case v == final, v == missing && whole:
			if text := err.Error(); strings.Contains(text, formatError) {
				return o, fmt.Errorf("%w: %s: %s", driver.ErrUnavailable, name, formatText(text)) // L24
			}
			return o, unavailable(fmt.Errorf("%s: %w", name, err))
		case v == missing:
			whole = true
			continue
		case v == unknown:
			o.again = true
		}
		pause(ctx, backOff(attempt))
	}
}

func tooLate(name string, last error) error {
	return fmt.Errorf("%w: %s: no success within %v: %w", driver.ErrUnavailable, name, driver.CallTimeout, last)
}

// backOff doubles from 5 to 80 ms, with a random factor of 0.5 to 1, so that
// processes do not retry in step.
func backOff(attempt int) time.Duration {
	d := 5 * time.Millisecond << min(attempt, 4)
	return d/2 + rand.N(d/2) //nolint:gosec // not a secret
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
