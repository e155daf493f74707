package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// openLock opens the driver that was decided on.
func openLock(ctx context.Context, c *config.Config, d Decision, log *slog.Logger) (driver.Driver, error) {
	if d.Chosen == "memory" {
		return memory.NewLock(), nil
	}
	w := waiting{open: func(ctx context.Context) (driver.Driver, error) {
		return redis.OpenLock(ctx, redis.Config{
			URL: c.Cache[d.Cache].URL.Reveal(), Engine: c.Lock.Redis.Engine, Key: c.Lock.Redis.Key,
		})
	}, log: log.With("driver", d.Chosen, "address", c.Cache[d.Cache].URL), limit: c.Boot.WaitFor}
	opened, err := w.run(ctx)
	if err != nil {
		return nil, w.failure(c, d, err)
	}
	return opened, nil
}

// The pauses between attempts to reach a server.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// waiting opens a driver whose server may come up later than this program.
type waiting struct {
	open     func(context.Context) (driver.Driver, error)
	log      *slog.Logger
	limit    time.Duration
	attempts int
	took     time.Duration
}

func (w *waiting) run(ctx context.Context) (driver.Driver, error) {
	began := time.Now()
	defer func() { w.took = time.Since(began) }()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		w.attempts++
		d, err := w.open(ctx)
		if err == nil || hopeless(err) || ctx.Err() != nil {
			return d, err
		}
		left := w.limit - time.Since(began)
		if left <= 0 {
			return nil, err
		}
		w.log.Warn("waiting for the lock's server", "error", err, "left", left.Round(100*time.Millisecond))
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// hopeless errors are the same next time.
func hopeless(err error) bool {
	return errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrUnsupported)
}

func (w *waiting) failure(c *config.Config, d Decision, err error) error {
	f := &Failure{
		Code: "lock.driver_unavailable", Exit: ExitUnavailable, Cause: err,
		Text:  fmt.Sprintf("Locks are to be kept in %s, but it cannot be used.", d.Chosen),
		Facts: []Fact{asked(c, "cache."+d.Cache+".url"), asked(c, d.Key), {"tried", fmt.Sprintf("%d times in %v", w.attempts, w.took.Round(100*time.Millisecond))}},
		Actions: []string{
			"start it:         a redis-server at that address",
			"point elsewhere:  " + config.EnvName("cache."+d.Cache+".url") + "=redis://localhost:6379/0",
			"wait longer:      MEGA_BOOT_WAIT_FOR=60s",
			"do without:       unset " + config.EnvName("cache."+d.Cache+".url") + ", and locks end at this process",
		},
	}
	if d.Key == "cache."+d.Cache+".url" {
		f.Facts = append(f.Facts[:1], f.Facts[2])
	}
	if hopeless(err) {
		f.Code, f.Exit, f.Actions = "lock.driver_refused", ExitConfig, nil
	}
	return f
}
