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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/supervisor"
	"github.com/megaframework/mega/internal/systemd"
)

// Process is what a program runs in.
type Process struct {
	Name    string    // of the program; default that of the executable
	Environ []string  // as from os.Environ
	Stderr  io.Writer // where the report and the log go

	Args []string // that it was started with, its name first: what workers are started with, too

	Dir    string   // where the search for files of configuration begins; "" searches nowhere
	Config string   // the file of configuration, or its folder, in place of the search
	Set    []string // key=value, stronger than everything else
	Only   []string // the apps to run; empty runs them all
	Trace  []string // what to trace while booting: "fx"
	// Verbose has the boot report show all candidates, settings and slow phases.
	Verbose bool
	JSON    bool // Main tells why the program did not start as JSON, in place of a panel

	// Hangups has Main read the configuration again with each signal; in env
	// dev it ends the program, whose terminal was closed. It may be nil.
	Hangups <-chan os.Signal

	// Restarts begins to listen for signals that ask for new workers, one after
	// the other, and returns how to end that. AtSecondSignal is told what to do
	// before the process is ended at once. Both may be nil, and concern a process
	// that has workers.
	Restarts       func() (signals <-chan os.Signal, off func())
	AtSecondSignal func(do func())

	Offline *Offline // for test kits: the program runs without sockets
}

// Running is a program that has started.
type Running struct {
	b    *booting
	stop func() error
}

// Start boots the program that options describe. When ctx ends before it has
// started, or when a part of it fails, what was started is ended again. ctx's
// end afterwards means nothing.
func Start(ctx context.Context, p Process, options ...Option) (*Running, error) {
	program, err := p.program(options)
	if err != nil {
		return nil, err
	}
	b := newBooting(ctx, p, program)
	if err := b.start(); err != nil {
		return nil, b.gaveUp(err, b.unwind())
	}
	b.report.Took = time.Since(b.began)
	if !b.supervised() { // of workers, the supervisor tells
		b.report.tell(p, b.config, b.log)
	}
	b.publish()
	b.presents()
	return &Running{b, sync.OnceValue(b.shutdown)}, nil
}

// stoppedError is a boot that was asked to stop before it had come to its end.
type stoppedError struct {
	why error // the end of its context
	cut error // what did not end with it; may be nil
}

func (e *stoppedError) Error() string {
	return errors.Join(fmt.Errorf("stopped before it had started: %w", e.why), e.cut).Error()
}

func (e *stoppedError) Unwrap() error { return e.why }

// gaveUp is why a program did not start, and what could not be ended again.
func (b *booting) gaveUp(err, cut error) error {
	if why := b.ctx.Err(); why != nil && errors.Is(err, why) {
		if errors.Is(err, errStuck) {
			cut = errors.Join(err, cut)
		}
		return &stoppedError{why, cut}
	}
	f := *b.process.told(err)
	f.Mask = b.veil.text
	if cut != nil {
		f.Facts = append(slices.Clip(f.Facts), Fact{Name: "left behind", Value: cut.Error()})
	}
	return &f
}

// Report is what the boot came to.
func (r *Running) Report() Report { return *r.b.told.Load() }

// Log is the logger of the process.
func (r *Running) Log() *slog.Logger { return r.b.log }

// Wait returns nil when ctx has ended or the program has asked for its own
// end, or why the program cannot go on.
func (r *Running) Wait(ctx context.Context) error { return r.until(ctx, nil) }

// until is Wait, and has the configuration read again with each hangup.
func (r *Running) until(ctx context.Context, hangups <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.b.alone():
			r.b.log.Error("the supervisor is gone")
			return nil
		case err := <-r.b.failed:
			if errors.Is(err, shutdownError{}) {
				return nil
			}
			return err
		case <-hangups:
			if r.b.config.Env == "dev" {
				r.b.log.Info("terminal closed")
				return nil
			}
			r.b.log.Info("configuration reload requested")
			_, _ = r.b.reload(nil) // it logs its errors
		}
	}
}

// Stop ends the program: it is no longer ready, accepts nothing new, finishes
// what is in flight, ends the locks, and closes what was provided, all within
// shutdown.timeout. It returns what had to be cut off, by name. Every call
// returns when all is over, with the same.
func (r *Running) Stop() error { return r.stop() }

// Main is a whole program: it starts, serves until ctx ends, stops, and returns
// the exit status. Where several workers are configured, it runs them, each of
// which is such a program.
func Main(ctx context.Context, p Process, options ...Option) int {
	defer supervisor.Reap(slog.New(slog.NewTextHandler(p.Stderr, nil)))()
	if program, c, files := p.supervises(options); c != nil {
		return p.supervise(ctx, program, c, files)
	}
	running, err := Start(ctx, p, options...)
	if err != nil {
		return p.notStarted(err)
	}
	log := running.Log()
	var manager *systemd.Manager
	if !running.b.supervised() { // whose supervisor notifies for all
		manager = systemd.Find(p.Environ, log, running.b.probes.touch)
	}
	defer manager.Close()
	manager.Ready()
	broken := running.until(ctx, p.Hangups)
	manager.Stopping()
	if broken != nil {
		log.Error("program failed", "error", broken)
	}
	log.Info("stopping")
	cut := running.Stop()
	switch {
	case cut != nil:
		log.Error("stopped with work cut off", "error", cut)
	default:
		log.Info("stopped")
	}
	return status(broken, cut)
}

// notStarted tells why a program did not start and returns the exit status.
func (p Process) notStarted(err error) int {
	stopped, ok := errors.AsType[*stoppedError](err)
	switch {
	case !ok:
		return p.tellFailure(failureOf(err))
	case stopped.cut != nil:
		fmt.Fprintf(p.Stderr, "%s was %v\n", p.name(), stopped)
		return ExitCut
	}
	return ExitOK
}

func (p Process) tellFailure(f *Failure) int {
	if n := p.worker(); n > 0 { // its panel stands among those of the others
		of := *f
		of.Facts = append([]Fact{{Name: "worker", Value: strconv.Itoa(n)}}, f.Facts...)
		f = &of
	}
	if !p.JSON {
		f.Print(p.Stderr, p.name())
		return f.Exit
	}
	text := json.NewEncoder(p.Stderr)
	text.SetEscapeHTML(false)
	_ = text.Encode(f) // there is nobody left to tell
	return f.Exit
}

func status(broken, cut error) int {
	asked, isAsked := errors.AsType[shutdownError](broken)
	switch {
	case isAsked:
		return asked.code
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
	return envOf(filepath.ToSlash(exe))
}

// goRun is where go run has its executables: where it linked one, or from the
// second time on in the go command's cache.
var goRun = regexp.MustCompile(`/go-build[^/]*/.*/exe/[^/]+$|/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

func envOf(exe string) string {
	switch {
	case strings.HasSuffix(strings.TrimSuffix(exe, ".exe"), ".test"):
		return "test"
	case goRun.MatchString(exe):
		return "dev"
	}
	return "production"
}

// LoadConfig returns the configuration of the program that options describe,
// and does nothing else.
func LoadConfig(p Process, options ...Option) (*config.Config, error) {
	program, err := p.program(options)
	if err != nil {
		return nil, err
	}
	c, err := config.Load(p.source(program))
	if err != nil {
		return nil, failureOf(err)
	}
	return c, nil
}

// openLog is available from the first stage on.
func (b *booting) openLog(c *config.Config) *slog.Logger {
	b.logs = newLogs(b.process.Stderr, c, b.process.worker(), &b.veil)
	b.log = b.logs.process()
	b.life.log = b.log
	return b.log
}

// fail ends the program. Only the first reason counts.
func (b *booting) fail(err error) {
	select {
	case b.failed <- err:
	default:
		b.log.Error("further failure", "error", fmt.Sprint(err))
	}
}
