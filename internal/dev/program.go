package dev

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// program is one build of the program, and its process.
type program struct {
	path   string // of the executable
	report string // the file to which the process writes the paths that it reads from disk
	sum    [sha256.Size]byte

	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has ended and been waited for
	stopping atomic.Bool   // stop was called
}

// grace is the time between the request to stop and the kill.
const grace = 10 * time.Second

// build runs go build. Its output goes to the reader.
func (d *runner) build(ctx context.Context, path string) error {
	if err := isFolder(d.Dir); err != nil { // the system would report that the go command is missing
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.Dir, append(slices.Clone(d.Environ), "PWD="+d.Dir), d.Stderr, d.Stderr
	isolate(cmd)
	cmd.Cancel = func() error { return killGroup(cmd.Process) } // the compilers too
	cmd.WaitDelay = grace
	return cmd.Run()
}

// archiveMagic is the start of the file that go build writes for a package that is
// not main.
const archiveMagic = "!<arch>\n"

// identify sets the sum of the executable: equal sources have equal sums. It returns
// an error if the package is not main.
func (p *program) identify() error {
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was opened for reading
	start := make([]byte, len(archiveMagic))
	if n, _ := io.ReadFull(f, start); string(start[:n]) == archiveMagic {
		return errors.New("the package is not main, so it is no program")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	sum.Sum(p.sum[:0])
	return err
}

// start starts the process, in a group of its own, and the goroutine that waits
// for it.
func (p *program) start(c Config, logf func(string, ...any)) error {
	if err := os.WriteFile(p.report, nil, 0o600); err != nil {
		return err
	}
	p.cmd = exec.Command(p.path, c.Args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.Dir, c.Stdout, c.Stderr
	p.cmd.Env = append(environ(c.Environ), "PWD="+c.Dir, "MEGA_RUN_DEV="+p.report)
	p.cmd.WaitDelay = grace
	isolate(p.cmd)
	p.done = make(chan struct{})
	started := make(chan error)
	go func() {
		defer close(p.done)
		release := bindDeath(p.cmd) // the thread that starts the process has to outlive it
		defer release()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.wait(logf)
		}
	}()
	return <-started
}

// wait waits for the process and logs an end that was not requested.
func (p *program) wait(logf func(string, ...any)) {
	err := p.cmd.Wait()
	_ = killGroup(p.cmd.Process) // what the program has left behind
	if p.stopping.Load() {
		return
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		logf("the program ended: %v; waiting for a change", err)
		return
	}
	logf("the program ended; waiting for a change")
}

func (p *program) isRunning() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop ends the process and waits for its end. It kills the process after grace, or
// when kill receives a signal.
func (p *program) stop(kill <-chan os.Signal, logf func(string, ...any)) {
	p.stopping.Store(true)
	if !p.isRunning() {
		return
	}
	_ = terminate(p.cmd.Process) // it may have ended meanwhile
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.done:
		return
	case <-kill:
		logf("the program is killed at the second signal")
	case <-late.C:
		logf("the program has not ended within %v of the request; killed", grace)
	}
	_ = killGroup(p.cmd.Process)
	<-p.done
}

// readPaths returns the paths that the process reads from disk.
func (p *program) readPaths() (paths []string) {
	text, err := os.ReadFile(p.report)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if path := strings.TrimSuffix(line, "\n"); filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// environ returns the environment of the program: env dev, unless it names
// another.
func environ(own []string) []string {
	env := slices.Clone(own)
	if !slices.ContainsFunc(own, func(kv string) bool { return strings.HasPrefix(kv, "MEGA_ENV=") && kv != "MEGA_ENV=" }) {
		env = append(env, "MEGA_ENV=dev")
	}
	return env
}

// errNoProcess is the error for a process that has not started.
var errNoProcess = fmt.Errorf("there is no process: %w", os.ErrProcessDone)
