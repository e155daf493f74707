package redistest

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// clockSource is a library that shifts the wall clock of the process that loads
// it. (libfaketime does not start under jemalloc, which Debian's redis-server
// uses.)
//
//go:embed testdata/clock.c
var clockSource []byte

// CanStepClock reports whether servers on this system can have a clock that tests
// set.
func CanStepClock() bool { return runtime.GOOS == "linux" }

// clockLibrary compiles the library, once per machine and version of it.
var clockLibrary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "redistest-clock-")
	if err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, built := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	compiler := "cc"
	if cc := os.Getenv("CC"); cc != "" {
		compiler = cc
	}
	if out, err := exec.Command(compiler, "-O1", "-shared", "-fPIC", "-o", built, source).CombinedOutput(); err != nil { //nolint:gosec // a test's own compiler
		return "", fmt.Errorf("redistest: compile the clock: %w (install gcc and libc6-dev)\n%s", err, out)
	}
	library, err := os.ReadFile(built) //nolint:gosec // as above
	return string(library), err
})

// steppable returns the environment of a server whose wall clock StepClock sets.
func (s *Server) steppable() ([]string, error) {
	if !CanStepClock() {
		return nil, errors.New("redistest: Options.Clock needs Linux")
	}
	library, err := clockLibrary()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.file("clock.so"), []byte(library), 0o600); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	if _, err := os.Stat(s.file("clock")); err != nil {
		if err := s.setClock(0); err != nil {
			return nil, err
		}
	}
	return append(os.Environ(), "LD_PRELOAD="+s.file("clock.so"), "MEGA_CLOCK="+s.file("clock")), nil
}

// setClock writes the file that the server has mapped.
func (s *Server) setClock(ahead time.Duration) error {
	f, err := os.OpenFile(s.file("clock"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(ahead))) //nolint:gosec // it may be negative
	return errors.Join(err, f.Close())
}

// StepClock sets the wall clock of a server with Options.Clock to a time ahead of
// this machine's clock, or behind it if ahead is negative. It returns when a server
// that runs uses it, and survives a restart.
func (s *Server) StepClock(ahead time.Duration) error {
	if !s.options.Clock {
		return errors.New("redistest: step the clock of a server that was started without Options.Clock")
	}
	if err := s.setClock(ahead); err != nil || s.running() == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return until(ctx, "wait for the clock", func() error { return s.isAhead(ahead) })
}

// isAhead returns nil when the server uses a clock that is ahead by that. Valkey 9 reads
// the clock once in a millisecond.
func (s *Server) isAhead(by time.Duration) error {
	const precision = 5 * time.Millisecond
	earliest := time.Now().Add(by - precision)
	v, err := s.Do("TIME")
	if err != nil {
		return err
	}
	var now [2]int64 // seconds and microseconds
	for i, n := range v.([]any) {
		if now[i], err = strconv.ParseInt(fmt.Sprint(n), 10, 64); err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	at := time.Unix(now[0], now[1]*1000)
	if at.Before(earliest) || at.After(time.Now().Add(by+precision)) {
		return fmt.Errorf("%s has the time %v", s.Addr(), at)
	}
	return nil
}
