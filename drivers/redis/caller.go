package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/lock/driver"
)

// backend is one server, or a Cluster of them.
type backend interface {
	// do makes one attempt to execute a command at the server that has key,
	// and does not use args afterwards. judge can classify its error. again
	// means that the command may have been sent more than once.
	do(ctx context.Context, key string, args []string, limit time.Duration) (reply any, again bool, err error)
	// home identifies the server of a key, as far as it is known.
	home(ctx context.Context, key string) any
	// repeats reports whether a command may be sent twice unnoticed.
	repeats() bool
	// together is the number of keys of different locks that one script may
	// use.
	together() int
	// onReconnect sets a function that is called when calls may go to another
	// server than before: one that has less data. A client that repeats a call after
	// a connection has ended may have executed it twice: cut is called before the
	// answer, and also if fn was called a moment ago. They must not block.
	onReconnect(fn, cut func())
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

// each calls fn for every part, with a bounded number of goroutines for each server, and
// returns after the last call (L10). keyOf returns a key of a part: a server that hangs
// does not delay the parts of other servers.
func each[T any](ctx context.Context, b backend, parts []T, keyOf func(T) string, fn func(T)) {
	if len(parts) == 1 {
		fn(parts[0])
		return
	}
	queues := map[any][]T{}
	for _, part := range parts {
		s := b.home(ctx, keyOf(part))
		queues[s] = append(queues[s], part)
	}
	var calls sync.WaitGroup
	for _, queue := range queues {
		todo := make(chan T, len(queue))
		for _, part := range queue {
			todo <- part
		}
		close(todo)
		for range min(len(queue), wire.InFlight) { // more calls would wait for a connection
			calls.Go(func() {
				for part := range todo {
					fn(part)
				}
			})
		}
	}
	calls.Wait()
}

// request is one call of a script.
type request struct {
	script *script
	key    string   // any key of the request
	args   []string // as for EVALSHA, with room for the name and the script
}

// on returns a request of a script on the lock with this holder key.
func (s *script) on(holder string, argv ...string) request {
	if s.layout != nil {
		return s.over(append(s.layout.names(holder), s.layout.mark(holder)), argv...)
	}
	args := make([]string, 4, 4+len(argv))
	args[2], args[3] = "1", holder
	return request{script: s, key: holder, args: append(args, argv...)}
}

// over returns a request of a script with these keys.
func (s *script) over(keys []string, argv ...string) request {
	args := make([]string, 3, 3+len(keys)+len(argv))
	args[2] = digits(len(keys))
	args = append(args, keys...)
	return request{script: s, key: keys[0], args: append(args, argv...)}
}

// command returns the command, which is valid until the next call of command.
func (r request) command(whole bool) []string {
	r.args[0], r.args[1] = evalsha, r.script.sha
	if whole {
		r.args[0], r.args[1] = eval, r.script.source
	}
	return r.args
}

const evalsha, eval = "evalsha", "eval"

// caller calls scripts and repeats calls whose answer may be lost. Every script
// is idempotent by token, so that is safe.
type caller struct{ backend backend }

// run returns the answer of the script, or an error within driver.CallTimeout:
// one that wraps ctx's error, or ErrUnavailable with the cause.
func (c caller) run(ctx context.Context, r request) (outcome, error) {
	return c.send(ctx, r.script.name, r.key, r.command)
}

// mayLoad returns an error if the user may not send a whole script, or if the server
// has disabled a command that one of these scripts calls. A user that may only name a
// script works as long as the server has the scripts of another process, and many
// commands are called in rare cases alone.
func (c caller) mayLoad(ctx context.Context, key string, all ...*script) error {
	args := append([]string{eval, findDisabled, "1", key}, commandsOf(all)...)
	_, err := c.send(ctx, "load a script", key, func(bool) []string { return args })
	return err
}

// send calls do with the command for each attempt. whole means that the server does
// not know the script by its hash.
func (c caller) send(ctx context.Context, name, key string, command func(whole bool) []string) (outcome, error) {
	start := time.Now()
	var o outcome
	var last error
	for attempt, whole := 0, false; ; attempt++ {
		limit := driver.CallTimeout - time.Since(start)
		if limit <= 0 {
			return o, tooLate(name, last)
		}
		o.sent = driver.Now()
		reply, again, err := c.backend.do(ctx, key, command(whole), limit)
		o.again = o.again || again
		switch {
		case err == nil, err == goredis.Nil: //nolint:errorlint // wrapped it is the answer of a Sentinel, see judge
			o.reply = reply
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
				return o, fmt.Errorf("%w: %s: %w", driver.ErrUnavailable, name, otherFormat(text)) // L24
			}
			return o, unavailable(fmt.Errorf("%s: %w", name, err))
		case v == missing:
			whole = true
			continue
		case v == unknown:
			o.again = true
		}
		group.Sleep(ctx, backOff(attempt))
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
