package boot

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/megaframework/mega/config"
)

// levels are those that a log can be set to.
var levels = []string{"debug", "info", "warn", "error"}

// set sets the least level of an app, or of everything that the process writes
// if app is empty. It holds until the configuration is read again.
func (l *logs) set(app, level string) error {
	if !slices.Contains(levels, level) {
		return fmt.Errorf("%q is none of %s", level, strings.Join(levels, ", "))
	}
	if app == "" {
		l.level.Set(levelOf(level))
		for _, of := range l.apps {
			of.Set(levelOf(level))
		}
		return nil
	}
	of, ok := l.apps[app]
	if !ok {
		return fmt.Errorf("there is no app %q", app)
	}
	of.Set(levelOf(level))
	return nil
}

// settings are the configuration that the process goes by.
func (b *booting) settings() []Setting {
	all := []Setting{}
	for _, v := range b.inForce.Load().Values() {
		all = append(all, newSetting(v))
	}
	return all
}

// Reload reads the configuration again and puts those of its changes in force
// that a running process can take over; each says whether it is. Where anything
// is wrong with what it reads, nothing changes, and the error says what.
func (r *Running) Reload() ([]config.Change, error) { return r.b.reload() }

// until is Wait, and has the configuration read again with each hangup.
func (r *Running) until(ctx context.Context, hangups <-chan os.Signal) error {
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop() // and then wait
	watch.Go(func() { r.heed(ctx, hangups, stop) })
	return r.Wait(ctx)
}

func (r *Running) heed(ctx context.Context, hangups <-chan os.Signal, stop func()) {
	for {
		select {
		case <-hangups:
		case <-ctx.Done():
			return
		}
		if r.b.config.Env == "dev" {
			r.b.log.Info("hung up: the terminal was closed")
			stop()
			return
		}
		r.b.log.Info("hung up: reading the configuration again")
		_, _ = r.b.reload() // it tells its errors
	}
}

func (b *booting) reload() ([]config.Change, error) {
	b.reloading.Lock()
	defer b.reloading.Unlock()
	next, changes, err := config.Reload(b.inForce.Load(), b.process.source(b.program))
	if err != nil {
		b.log.Error("the configuration was read again and refused; nothing has changed", "error", err)
		return nil, err
	}
	b.logs.apply(next)
	for _, h := range b.hosts {
		if app, ok := next.Apps[h.App.Name]; ok {
			if err := h.SetLimits(limitsOf(app)); err != nil {
				return nil, err // only origins can be wrong, and they are not live
			}
		}
	}
	b.inForce.Store(next)
	for _, c := range changes {
		b.log.Info("configuration changed", slog.String("key", c.Key), slog.String("old", c.Old), slog.String("new", c.New), slog.Bool("in_force", c.Live))
	}
	return changes, nil
}
