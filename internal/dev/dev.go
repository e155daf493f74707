// Package dev runs an application while it is developed: it builds the program,
// starts it, and does both again after a change of the sources. The files that
// the program reads from disk itself need neither.
//
// A build that fails is reported, and the program that runs keeps running. The
// sources are compared a few times a second instead of by notifications of the
// system: these are missing on network and container mounts, are limited in
// number, and are lost by editors that replace files.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/group"
)

// Config describes what to run.
type Config struct {
	Dir     string   // the folder of the program; default: the current one
	Args    []string // of the program
	Environ []string // of the go command and the program
	Stdout  io.Writer
	Stderr  io.Writer
	Kill    <-chan os.Signal // kills a program that has not ended yet; may be nil
}

// The times of the comparisons of the sources.
const (
	interval  = 200 * time.Millisecond // between two comparisons, at least
	settle    = 100 * time.Millisecond // without a further change until a rebuild
	maxSettle = 2 * time.Second        // from the first change to a rebuild
)

// Run builds and runs the program until ctx ends, and leaves no process and no
// file behind. It returns an error only if it cannot work at all.
func Run(ctx context.Context, c Config) (err error) {
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if err := isFolder(c.Dir); err != nil {
		return err
	}
	root, err := moduleOf(c.Dir)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mega-dev-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	d := &runner{Config: c, root: root, temp: temp}
	defer d.stop()
	return d.run(ctx)
}

func isFolder(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", dir)
	}
	return err
}

// moduleOf returns the folder with the go.mod of a folder.
func moduleOf(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no module: there is no go.mod in it or above it", dir)
		}
	}
}

// runner is one run of mega dev. It belongs to one goroutine.
type runner struct {
	Config
	root, temp string
	builds     int
	program    *program // nil before the first build that succeeds
	stale      bool     // a file of the configuration has changed since the program was started
}

func (d *runner) run(ctx context.Context) error {
	seen := scan(d.root)
	d.rebuild(ctx, nil)
	for {
		now, changed := d.waitForChange(ctx, seen)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the user has ended mega dev
		}
		seen = now
		if d.readsItself(changed) {
			d.logf("%s changed; the program reads it from disk", summary(changed))
			continue
		}
		d.logf("%s changed", summary(changed))
		d.rebuild(ctx, changed)
	}
}

// waitForChange returns the sources and the files that have changed, once they have
// stopped changing.
func (d *runner) waitForChange(ctx context.Context, seen sources) (sources, []string) {
	for {
		began := time.Now()
		now := scan(d.root)
		took := time.Since(began) // without the wait for further changes
		if len(seen.changed(now)) > 0 {
			now = d.settled(ctx, now)
			// An editor may have made a file and removed it again.
			if changed := seen.changed(now); len(changed) > 0 {
				return now, changed
			}
		}
		// A large tree is compared less often, so that it costs a tenth of a core.
		if !group.Sleep(ctx, max(interval, 9*took)) {
			return seen, nil
		}
	}
}

// settled returns the sources when two comparisons agree.
func (d *runner) settled(ctx context.Context, last sources) sources {
	for until := time.Now().Add(maxSettle); time.Now().Before(until) && group.Sleep(ctx, settle); {
		now := scan(d.root)
		if len(last.changed(now)) == 0 {
			return now
		}
		last = now
	}
	return last
}

// readsItself reports whether the running program reads all these files from
// disk when they change.
func (d *runner) readsItself(changed []string) bool {
	if d.program == nil || !d.program.isRunning() {
		return false
	}
	paths := d.program.readPaths()
	return !slices.ContainsFunc(changed, func(file string) bool {
		return !slices.ContainsFunc(paths, func(path string) bool {
			return file == path || strings.HasPrefix(file, path+string(filepath.Separator))
		})
	})
}

// rebuild builds the program and replaces the running process. If the executable is
// the same, the changed files are not sources (the program may write them itself),
// and the process keeps running, unless its configuration has changed.
func (d *runner) rebuild(ctx context.Context, changed []string) {
	d.builds++
	d.stale = d.stale || slices.ContainsFunc(changed, isConfig)
	began := time.Now()
	next := &program{
		path:   filepath.Join(d.temp, fmt.Sprint(d.builds), executable(filepath.Base(d.Dir))),
		report: filepath.Join(d.temp, fmt.Sprint("paths-", d.builds)),
	}
	if err := d.build(ctx, next.path); err != nil {
		if ctx.Err() != nil {
			return
		}
		if _, reported := errors.AsType[*exec.ExitError](err); !reported { // by the output of go build
			d.logf("cannot run go build: %v", err)
		}
		if d.program != nil && d.program.isRunning() {
			d.logf("the build failed; the previous program keeps running")
		} else {
			d.logf("the build failed; waiting for a change")
		}
		return
	}
	if err := next.identify(); err != nil {
		d.logf("cannot use the build: %v", err)
		return
	}
	if d.program != nil && d.program.isRunning() && d.program.sum == next.sum && !d.stale {
		d.logf("the program is the same and keeps running")
		_ = os.RemoveAll(filepath.Dir(next.path)) // the rest goes with the folder of the run
		return
	}
	d.logf("built in %v", time.Since(began).Round(10*time.Millisecond))
	d.stop()
	if ctx.Err() != nil {
		return
	}
	if err := next.start(d.Config, d.logf); err != nil {
		d.logf("cannot start the program: %v", err)
		return
	}
	d.program, d.stale = next, false
}

// stop ends the running program and removes its file.
func (d *runner) stop() {
	if d.program == nil {
		return
	}
	d.program.stop(d.Kill, d.logf)
	_ = os.RemoveAll(filepath.Dir(d.program.path)) // the rest goes with the folder of the run
	d.program = nil
}

// logf writes a line to standard error.
func (d *runner) logf(format string, args ...any) {
	fmt.Fprintf(d.Stderr, "mega dev: "+format+"\n", args...)
}

// summary names files for a person.
func summary(files []string) string {
	name := filepath.Base(files[0])
	switch len(files) {
	case 1:
		return name
	case 2:
		return name + " and one more file"
	}
	return fmt.Sprintf("%s and %d more files", name, len(files)-1)
}
