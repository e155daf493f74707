package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// built reports whether this build contains a driver. A decision does not
// depend on it: the boot fails if the chosen driver is not built in.
func built(component, name string) bool {
	switch component {
	case "lock":
		return name == "redis" || name == "memory" || name == "cluster" && clustered()
	case "bus":
		return name == "nats" || name == "memory" || name == "cluster" && clustered()
	}
	return false
}

// openLock opens the chosen driver.
func openLock(ctx context.Context, c *config.Config, d Decision, log *slog.Logger, m *party) (driver.Driver, error) {
	switch {
	case !built("lock", d.Chosen):
		return nil, lockMissing(c, d)
	case d.Chosen == "redis":
		return openRedis(ctx, c, d, log)
	case d.Chosen == "cluster":
		node, err := m.join(ctx, c, d, log)
		if err != nil {
			return nil, err
		}
		return node.Locks(c.Lock.Namespace), nil
	}
	return memory.NewLock(), nil
}

// missing returns an error if this build lacks a chosen driver.
func missing(c *config.Config, d decisions) error {
	switch {
	case !built("lock", d.lock.Chosen):
		return lockMissing(c, d.lock)
	case !built("bus", d.bus.Chosen):
		return busMissing(c, d.bus)
	}
	return nil
}

func openRedis(ctx context.Context, c *config.Config, d Decision, log *slog.Logger) (driver.Driver, error) {
	w := waiting[driver.Driver]{
		open: func(ctx context.Context) (driver.Driver, error) {
			return redis.OpenLock(ctx, redis.Config{
				URL: c.Cache[d.Cache].URL.Reveal(), Engine: c.Lock.Redis.Engine, Key: c.Lock.Redis.Key, Namespace: c.Lock.Namespace,
			})
		},
		log: log.With("component", d.Component, "driver", d.Chosen, "server", d.Server), limit: c.Boot.WaitFor,
		hopeless: func(err error) bool {
			return errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrUnsupported) || denied(err)
		},
	}
	opened, err := w.run(ctx)
	if err != nil {
		return nil, lockUnavailable(c, d, w.account(err), err)
	}
	return opened, nil
}

// The pauses between attempts to reach a server.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// waiting opens a driver whose server may start later than this program.
type waiting[D any] struct {
	open     func(context.Context) (D, error)
	hopeless func(error) bool // reports whether a retry would fail in the same way
	log      *slog.Logger
	limit    time.Duration

	attempts int
	took     time.Duration
}

// run retries until it succeeds, the limit is over or ctx ends, and logs the
// cause of each failed attempt. If ctx ends, the returned error wraps its
// error.
func (w *waiting[D]) run(ctx context.Context) (D, error) {
	began := time.Now()
	defer func() { w.took = time.Since(began) }()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		w.attempts++
		d, err := w.open(ctx)
		left := w.limit - time.Since(began)
		switch {
		case err == nil:
			return d, nil
		case ctx.Err() != nil:
			return d, errors.Join(ctx.Err(), err)
		case w.hopeless(err) || left <= 0:
			return d, err
		}
		w.log.Warn("waiting for the server", "attempt", w.attempts, "error", err, "left", left.Round(100*time.Millisecond))
		if err := sleep(ctx, min(pause, left)); err != nil {
			return d, err
		}
	}
}

// denied reports whether a server refuses the credentials or the permissions of
// this process. A retry would fail in the same way (L21).
func denied(err error) bool {
	text := err.Error()
	return slices.ContainsFunc(denials(), func(denial string) bool { return strings.Contains(text, denial) })
}

// denials returns error texts of redis, of NATS and of their clients.
func denials() []string {
	return []string{
		"WRONGPASS ", "NOAUTH ", "NOPERM ", "ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH",
		"nats: Authorization Violation", "nats: authorization violation", "nats: authentication expired", "nats: authentication revoked",
		"nats: account authentication expired", "nats: user authentication expired", "nats: user authentication revoked", "nats: permissions violation",
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attempts describes the attempts to reach a server.
type attempts struct {
	tried    Fact
	hopeless bool
}

func (w *waiting[D]) account(err error) attempts {
	times := "once"
	if w.attempts > 1 {
		times = fmt.Sprintf("%d times", w.attempts)
	}
	return attempts{Fact{Name: "tried", Value: fmt.Sprintf("%s in %v", times, w.took.Round(100*time.Millisecond))}, w.hopeless(err)}
}

// lockUnavailable returns the failure for a server of locks that cannot be
// used.
func lockUnavailable(c *config.Config, d Decision, a attempts, cause error) error {
	key := "cache." + d.Cache + ".url"
	facts := []Fact{failure.Setting(c, key)}
	if d.Key != key {
		facts = append(facts, failure.Setting(c, d.Key))
	}
	if denied(cause) {
		return &Failure{
			Code: "lock.driver_refused", Exit: ExitConfig, Cause: cause, Facts: facts,
			Text: "The Redis that is configured for locks refuses the credentials or permissions of this program.",
			Actions: []string{
				"Correct user and password:  " + failure.Set(c, key, "redis://user:password@host:6379/0"),
				"Grant the permissions:      the cause names the missing one",
				"Continue without:           " + doWithout(c, d, key),
			},
		}
	}
	if a.hopeless {
		return &Failure{
			Code: "lock.driver_refused", Exit: ExitConfig, Cause: cause, Facts: facts,
			Text:    "Locks are to be kept in redis, but it cannot be opened as configured.",
			Actions: []string{"correct it:  " + failure.Set(c, key, "redis://localhost:6379/0")},
		}
	}
	return &Failure{
		Code: "lock.driver_unavailable", Exit: ExitUnavailable, Cause: cause, Facts: append(facts, a.tried),
		Text: "Locks are to be kept in redis, but it cannot be used.",
		Actions: []string{
			mend(c, key, cause),
			"point elsewhere:  " + failure.SetOther(c, key, "redis://localhost:6379/0"),
			"wait longer:      " + failure.Set(c, "boot.wait_for", "60s"),
			"do without:       " + doWithout(c, d, key),
		},
	}
}

// mend returns an action for the server itself, derived from the cause.
func mend(c *config.Config, key string, cause error) string {
	text := cause.Error()
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case denied(cause):
		return "log in:           " + failure.Set(c, key, "redis://user:password@host:6379/0")
	case has("replica"):
		return "use its master:   " + failure.Set(c, key, "redis-sentinel://host1,host2,host3/master")
	case has("connection refused"):
		return "start it:         redis-server, or what runs it at that address"
	}
	return "see to it:        the cause says what is wrong with the server"
}

// doWithout returns the action that keeps locks in the process instead.
func doWithout(c *config.Config, d Decision, key string) string {
	if v, _ := failure.ValueOf(c, key); d.Key == key && len(c.Caches()) == 1 && len(v.Shadows) == 0 {
		return failure.Unset(c, key) + ": locks then end at this process"
	}
	return failure.Set(c, "lock.driver", "memory") + ": locks then end at this process"
}

func lockMissing(c *config.Config, d Decision) error {
	return &Failure{
		Code: "lock.driver_missing", Exit: ExitConfig,
		Text:    fmt.Sprintf("Locks are to be kept by the driver %s, which this build does not have.", d.Chosen),
		Facts:   decidedBy(c, d),
		Actions: []string{"share them through redis:   " + remedy(c, "redis"), "keep them in this process:  " + failure.Set(c, "lock.driver", "memory")},
	}
}

func busMissing(c *config.Config, d Decision) error {
	return &Failure{
		Code: "bus.driver_missing", Exit: ExitConfig,
		Text:    fmt.Sprintf("Messages are to be carried by the driver %s, which this build does not have.", d.Chosen),
		Facts:   decidedBy(c, d),
		Actions: []string{"keep them in this process:  " + failure.Set(c, "bus.driver", "memory")},
	}
}

// supervisorMissing returns the failure for several workers without a
// supervisor: the program was not started as a whole, or the system cannot
// share listeners.
func supervisorMissing(c *config.Config, cause error) error {
	return &Failure{
		Code: "cluster.no_supervisor", Exit: ExitConfig, Cause: cause,
		Text:    "Several workers are to run, but there is no supervisor for them here.",
		Facts:   []Fact{failure.Setting(c, "cluster.workers")},
		Actions: []string{"serve in one process:  " + failure.Unset(c, "cluster.workers")},
	}
}

// supervisorGone returns the failure for a process whose environment declares
// it a worker, but which has no supervisor.
func supervisorGone(cause error) error {
	return &Failure{
		Code: "cluster.no_supervisor", Exit: ExitConfig, Cause: cause,
		Text:    "The environment says that this process is a worker, but no supervisor is at the other end.",
		Actions: []string{"if it is to serve by itself:  unset MEGA_WORKER_*", "if it is to be a worker:      have it started by serve --workers 2"},
	}
}

// decidedBy returns the facts about the key that decided, or about the reason
// if no key did.
func decidedBy(c *config.Config, d Decision) []Fact {
	if _, ok := failure.ValueOf(c, d.Key); ok {
		return []Fact{failure.Setting(c, d.Key), {Name: "because", Value: d.Why}}
	}
	return []Fact{{Name: "because", Value: told(d)}}
}
