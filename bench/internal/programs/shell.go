package programs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// The contestants of the shell: `mega-lock exec` over the socket, which is mega,
// the same on Redis, and `mega lock exec` over the socket.
const (
	bareCommand = "the command alone"
	flockTool   = "flock(1)"
	semTool     = "sem"
	megaRedis   = "mega, redis"
	megaTool    = "mega, tool"

	withConnecting = "with connecting"
)

// ShellExec runs a command under a lock from a shell's point of view, and
// measures until the command writes and until all is over.
func ShellExec(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	s, err := newScripts(ctx, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	names := []string{bareCommand, flockTool, semTool, measure.Mega, megaRedis, megaTool}
	for _, name := range names { // the first start of the keeper, and of sem
		if _, _, err := s.run(ctx, name); err != nil {
			return nil, err
		}
	}
	started, over, connected, keeper := measure.Samples{}, measure.Samples{}, measure.Samples{}, measure.Samples{}
	for rep := range l.Reps(7) {
		if err := s.rep(ctx, l, names, started, over); err != nil {
			return nil, err
		}
		for name, open := range map[string]opening{measure.Mega: s.join, megaTool: s.join, megaRedis: s.dial} {
			d, err := connectTimes(ctx, l, open)
			if err != nil {
				return nil, fmt.Errorf("%s: connect: %w", name, err)
			}
			connected.Add(name, d)
		}
		d, err := s.firstStarts(ctx, l, rep)
		if err != nil {
			return nil, err
		}
		keeper.Add(measure.Mega, d-started[measure.Mega][rep])
	}
	own := func(name string) measure.Samples { // without the handshakes and the round trip of the acquire
		s := measure.Samples{withConnecting: started[name], bareCommand: started[bareCommand], flockTool: started[flockTool], semTool: started[semTool]}
		for i, d := range started[name] {
			s.Add(measure.Mega, d-connected[name][i])
		}
		return s
	}
	beside := func(name string) measure.Samples {
		return measure.Samples{measure.Mega: over[name], bareCommand: over[bareCommand], flockTool: over[flockTool], semTool: over[semTool]}
	}
	const toCommand = "start to command without connecting, "
	return []measure.Claim{
		own(measure.Mega).Absolute(toCommand+"socket", "ms", withConnecting, bareCommand, flockTool, semTool).AtMost(15),
		own(megaTool).Absolute(toCommand+"mega lock exec", "ms", withConnecting, bareCommand, flockTool, semTool).AtMost(15),
		own(megaRedis).Absolute(toCommand+"redis", "ms", withConnecting, bareCommand, flockTool, semTool).AtMost(15),
		keeper.Absolute("the first start of a keeper, in addition", "ms").AtMost(50),
		beside(measure.Mega).Ratio("start to end, socket", "ms", semTool, bareCommand, flockTool, semTool).AtMost(1),
		beside(megaRedis).Ratio("start to end, redis", "ms", semTool, bareCommand, flockTool, semTool).AtMost(1),
	}, nil
}

// scripts runs the same command under each lock.
type scripts struct {
	folder   string
	commands map[string][]string
	socket   string
	url      string
	keepers  []string // the sockets of the keepers that were started
}

func newScripts(ctx context.Context, l *lab.Lab) (*scripts, error) {
	for tool, of := range map[string]string{"flock": "util-linux", "sem": "parallel"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is needed to compare with: install the package %s, or use make bench, which installs it: %w", tool, of, err)
		}
	}
	server, err := l.Redis()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "bench-shell-")
	if err != nil {
		return nil, err
	}
	program, tool := filepath.Join(folder, "mega-lock"), filepath.Join(folder, "mega")
	if err := errors.Join(build(ctx, program, "./cmd/mega-lock"), build(ctx, tool, "./cmd/mega")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	s := &scripts{folder: folder, socket: filepath.Join(folder, "s"), url: server.URL(), keepers: []string{filepath.Join(folder, "s")}}
	echo := []string{"echo", "started"}
	s.commands = map[string][]string{
		bareCommand:  echo,
		flockTool:    append([]string{"flock", filepath.Join(folder, "flock")}, echo...),
		semTool:      append([]string{"sem", "--id", "bench", "--fg"}, echo...),
		measure.Mega: append([]string{program, "exec", "nightly", "--socket", s.socket, "--"}, echo...),
		megaTool:     append([]string{tool, "lock", "exec", "nightly", "--socket", s.socket, "--"}, echo...),
		megaRedis:    append([]string{program, "exec", "nightly", "--url", s.url, "--"}, echo...),
	}
	return s, nil
}

// build builds a program of the framework as a container has it: stripped, and
// without libraries of the system.
func build(ctx context.Context, program, path string) error {
	_, err := goTool(ctx, []string{"CGO_ENABLED=0"}, "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", program, path)
	return err
}

// run runs the command under a contestant, and returns the times until its first
// output and until its end.
func (s *scripts) run(ctx context.Context, name string) (started, over time.Duration, err error) {
	return s.runCommand(ctx, name, s.commands[name])
}

func (s *scripts) runCommand(ctx context.Context, name string, command []string) (started, over time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = s.folder, append(os.Environ(), "HOME="+s.folder) // sem keeps its files there
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", name, err)
	}
	_, read := out.Read(make([]byte, 1))
	started = time.Since(start)
	if err := errors.Join(cmd.Wait(), read); err != nil {
		return 0, 0, fmt.Errorf("%s: %w: %s", name, err, complaint.String())
	}
	return started, time.Since(start), nil
}

// rep adds the medians of a repetition, in milliseconds.
func (s *scripts) rep(ctx context.Context, l *lab.Lab, names []string, started, over measure.Samples) error {
	first, all := map[string][]time.Duration{}, map[string][]time.Duration{}
	for round := range l.Scaled(12) {
		for _, i := range measure.Turn(len(names), round) {
			a, b, err := s.run(ctx, names[i])
			if err != nil {
				return err
			}
			first[names[i]], all[names[i]] = append(first[names[i]], a), append(all[names[i]], b)
		}
	}
	for _, name := range names {
		started.Add(name, measure.Millis(measure.Median(first[name])))
		over.Add(name, measure.Millis(measure.Median(all[name])))
	}
	return nil
}

// firstStarts returns the median time until the command writes if it starts a
// keeper, each at a socket of its own.
func (s *scripts) firstStarts(ctx context.Context, l *lab.Lab, rep int) (float64, error) {
	var took []time.Duration
	for round := range l.Scaled(4) {
		socket := fmt.Sprintf("%s%d-%d", s.socket, rep, round)
		s.keepers = append(s.keepers, socket)
		command := append([]string(nil), s.commands[measure.Mega]...)
		for i, arg := range command {
			if arg == s.socket {
				command[i] = socket
			}
		}
		d, _, err := s.runCommand(ctx, measure.Mega, command)
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	return measure.Millis(measure.Median(took)), nil
}

// opening connects to a backend.
type opening func(ctx context.Context) (d driver.Driver, leave func(context.Context) error, err error)

// join connects to the keeper.
func (s *scripts) join(ctx context.Context) (driver.Driver, func(context.Context) error, error) {
	node, err := cluster.Dial(ctx, cluster.Config{Socket: s.socket, Recruit: func(context.Context) error {
		return errors.New("the keeper has ended")
	}})
	if err != nil {
		return nil, nil, err
	}
	return node.Locks(""), node.Close, nil
}

// dial connects to Redis.
func (s *scripts) dial(ctx context.Context) (driver.Driver, func(context.Context) error, error) {
	d, err := redis.OpenLock(ctx, redis.Config{URL: s.url})
	return d, func(context.Context) error { return nil }, err
}

// connectTimes returns the median time, in milliseconds, of connecting and
// acquiring a free key.
func connectTimes(ctx context.Context, l *lab.Lab, open opening) (float64, error) {
	var took []time.Duration
	for range l.Scaled(12) {
		d, err := connectTime(ctx, open)
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	return measure.Millis(measure.Median(took)), nil
}

func connectTime(ctx context.Context, open opening) (time.Duration, error) {
	start := time.Now()
	d, leave, err := open(ctx)
	if err != nil {
		return 0, err
	}
	locks, err := lock.New(d, lock.Config{})
	if err != nil {
		return 0, errors.Join(err, d.Close(ctx), leave(ctx))
	}
	lease, err := locks.Acquire(ctx, "connect")
	took := time.Since(start)
	if err == nil {
		err = lease.Release()
	}
	return took, errors.Join(err, locks.Close(ctx), leave(ctx))
}

// close waits for the end of the keepers, which stay for ten seconds without a
// client, and removes their files.
func (s *scripts) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, socket := range s.keepers {
		for listens(ctx, socket) {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return errors.Join(fmt.Errorf("the keeper at %s does not end: %w", socket, ctx.Err()), os.RemoveAll(s.folder))
			}
		}
	}
	return os.RemoveAll(s.folder)
}

func listens(ctx context.Context, socket string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
