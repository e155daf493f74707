// Package boot starts a program and ends it: configuration, lock driver,
// locks, apps, listeners, in that order, and back.
//
// What is chosen on the way is chosen by the configuration and told, with the
// reason and the key that decided. What cannot be had stops the boot, with a
// Failure that says what was asked, where, why it cannot be, and what to do.
//
// It is the only package that knows fx, and the only one that names the
// backends of locks.
package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/fx"

	"github.com/megaframework/mega/config"
)

// Process is what a program runs in.
type Process struct {
	Name    string    // of the program; default that of the executable
	Environ []string  // as from os.Environ
	Stderr  io.Writer // where the report and the log go

	Dir    string   // where the search for files of configuration begins; "" searches nowhere
	Config string   // the file of configuration, in place of the search
	Set    []string // key=value, stronger than everything else
	Only   []string // the apps to run; empty runs them all
	Trace  []string // what to trace while booting: "fx"
}

// Running is a program that has started.
type Running struct {
	b      *booting
	failed chan error // the first error that ends the program by itself
}

// Start boots the program that options describe. When ctx ends before it has
// started, what was started is ended again. ctx's end afterwards means nothing.
func Start(ctx context.Context, p Process, options ...Option) (*Running, error) {
	program, err := p.program(options)
	if err != nil {
		return nil, err
	}
	b := newBooting(ctx, p, program)
	app := fx.New(b.stages())
	if err = app.Err(); err == nil {
		err = app.Start(ctx)
	}
	if err != nil {
		_ = b.life.stop(context.WithoutCancel(ctx)) // why it did not start says more
		return nil, p.told(err)
	}
	b.report.Took = time.Since(b.began)
	b.report.tell(p.Stderr, b.config, b.log)
	return &Running{b: b, failed: b.failed}, nil
}

// Report is what the boot came to.
func (r *Running) Report() Report { return r.b.report }

// Log is the logger of the process.
func (r *Running) Log() *slog.Logger { return r.b.log }

// Wait returns nil when ctx has ended, or why the program cannot go on.
func (r *Running) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.failed:
		return err
	}
}

// Stop ends the program: it is no longer ready, accepts nothing new, finishes
// what is in flight, ends the locks, and closes what was provided. It returns
// what had to be cut off, by name.
func (r *Running) Stop() error {
	r.b.probes.serving.Store(false)
	if delay := r.b.config.Shutdown.Delay; delay > 0 {
		r.b.log.Info("stopping", "after", delay)
		time.Sleep(delay)
	}
	return r.b.life.stop(context.Background())
}

// Main is a whole program: it starts, serves until ctx ends, stops, and returns
// the exit status.
func Main(ctx context.Context, p Process, options ...Option) int {
	running, err := Start(ctx, p, options...)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return ExitOK // it was asked to stop before it had started
		}
		f := failureOf(err)
		f.Print(p.Stderr, p.name())
		return f.Exit
	}
	broken := running.Wait(ctx)
	log := running.Log()
	if broken != nil {
		log.Error("the program cannot go on", "error", broken)
	}
	log.Info("stopping")
	cut := running.Stop()
	switch {
	case cut != nil:
		log.Error("stopped, but not everything could finish", "error", cut)
	default:
		log.Info("stopped")
	}
	return status(broken, cut)
}

func status(broken, cut error) int {
	switch {
	case broken != nil:
		return ExitInternal
	case cut != nil:
		return ExitCut
	}
	return ExitOK
}

func (p Process) name() string {
	if p.Name != "" {
		return p.Name
	}
	exe, err := os.Executable()
	if err != nil {
		return "program"
	}
	return strings.TrimSuffix(filepath.Base(exe), ".exe")
}

// env is what MEGA_ENV is where it is not set: dev under go run, test under go
// test, else production.
func env() string {
	exe, err := os.Executable()
	if err != nil {
		return "production"
	}
	name := strings.TrimSuffix(filepath.Base(exe), ".exe")
	folder := filepath.ToSlash(filepath.Dir(exe)) + "/"
	switch {
	case strings.HasSuffix(name, ".test"):
		return "test"
	case strings.Contains(folder, "/go-build") && strings.HasSuffix(folder, "/exe/"):
		return "dev"
	}
	return "production"
}

// loadConfig is the first stage.
func (b *booting) loadConfig() (*config.Config, error) {
	c, err := config.Load(config.Source{
		Environ: b.process.Environ, Env: env(), Apps: b.program.names(), Sections: b.program.sections(),
	})
	if err != nil {
		return nil, err
	}
	b.config = c
	b.report = Report{Program: b.process.name(), Env: c.Env, PID: os.Getpid(), Set: settings(c)}
	return c, nil
}

// openLog is available from the first stage on.
func (b *booting) openLog(c *config.Config) *slog.Logger {
	b.log = newLog(b.process.Stderr, c)
	b.life.log = b.log
	return b.log
}

// fail ends the program. Only the first reason counts.
func (b *booting) fail(err error) {
	select {
	case b.failed <- err:
	default:
		b.log.Error("another failure", "error", fmt.Sprint(err))
	}
}
