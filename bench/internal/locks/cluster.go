package locks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
	"github.com/megaframework/mega/lock"
)

// The arguments that make this program an echo at meeting.Socket, and a holder of
// a key there or of meeting.File.
const (
	EchoRole   = "echo"
	HolderRole = "holder"
)

// The contestants on one node.
const (
	echoTwice = "2 echoes"
	flock     = "flock"
)

// echoSize is how large a question to a hub is, about, and its answer.
const echoSize = 80

// ServeEcho sends back what it receives at the socket, until in ends.
func ServeEcho(ctx context.Context, in io.Reader, out io.Writer) error {
	return lab.ServeAt(in, out, func(at lab.Meeting) (func() error, error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, "unix", at.Socket)
		if err != nil {
			return nil, err
		}
		go func() {
			if conn, err := l.Accept(); err == nil {
				echoAll(conn)
			}
		}()
		return l.Close, nil
	})
}

func echoAll(conn net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return
		}
		if _, err := conn.Write(b[:n]); err != nil {
			return
		}
	}
}

// ServeHolder holds the key, or the lock of the file, until in ends.
func ServeHolder(ctx context.Context, in io.Reader, out io.Writer) error {
	return lab.ServeAt(in, out, func(at lab.Meeting) (func() error, error) {
		if at.File != "" {
			f, err := os.OpenFile(at.File, os.O_RDWR, 0)
			if err != nil {
				return nil, err
			}
			return f.Close, lockFile(f)
		}
		l, err := peers.OpenNode(ctx, at.Socket)
		if err != nil {
			return nil, err
		}
		_, err = l.Acquire(ctx, at.Key)
		return func() error { return l.Close(ctx) }, err
	})
}

// node is a hub in another process and what this one has beside it.
type node struct {
	locks   *lock.Locker
	socket  string
	file    *os.File
	echo    net.Conn
	closers []func() error
}

func openNode(ctx context.Context) (n *node, err error) {
	n = &node{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return n, err
	}
	n.closers = append(n.closers, func() error { return os.RemoveAll(dir) })
	n.socket = filepath.Join(dir, "s")
	for arg, socket := range map[string]string{lab.HubRole: n.socket, EchoRole: filepath.Join(dir, "e")} {
		h, err := lab.StartHelper(arg, lab.Meeting{Socket: socket})
		if err != nil {
			return n, err
		}
		n.closers = append(n.closers, h.Stop)
	}
	if n.echo, err = (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "e")); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.echo.Close)
	if n.file, err = os.OpenFile(filepath.Join(dir, "file"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.file.Close)
	if n.locks, err = peers.OpenNode(ctx, n.socket); err == nil {
		n.closers = append(n.closers, func() error { return n.locks.Close(ctx) })
	}
	return n, err
}

func (n *node) close() error {
	var errs []error
	for _, end := range slices.Backward(n.closers) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

func (n *node) echoTwice() error {
	var b [echoSize]byte
	for range 2 {
		if _, err := n.echo.Write(b[:]); err != nil {
			return err
		}
		if _, err := io.ReadFull(n.echo, b[:]); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) flockCycle() error {
	if err := lockFile(n.file); err != nil {
		return err
	}
	return unlockFile(n.file)
}

// ClusterAlone takes and releases one free key at a time, beside two round trips
// to an echo in another process over the same kind of socket; the contestants
// alternate operation by operation.
func ClusterAlone(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	n, err := openNode(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	names := []string{measure.Mega, echoTwice, flock}
	cycle := func() error { return acquireRelease(ctx, n.locks) }
	ops := map[string]func() error{measure.Mega: cycle, echoTwice: n.echoTwice, flock: n.flockCycle}
	cycles, allocs := measure.Samples{}, measure.Samples{}
	for range l.Reps(9) {
		took := map[string][]time.Duration{}
		for round := range l.Scaled(4000) {
			for _, i := range measure.Turn(len(names), round) {
				start := time.Now()
				if err := ops[names[i]](); err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				took[names[i]] = append(took[names[i]], time.Since(start))
			}
		}
		for _, name := range names {
			cycles.Add(name, measure.Micros(measure.Median(took[name])))
		}
		count, err := measure.Allocations(l.Scaled(4000), measure.Each(cycle))
		if err != nil {
			return nil, err
		}
		allocs.Add(measure.Mega, count)
	}
	return []measure.Claim{
		cycles.Ratio("whole cycle, p50", "µs", echoTwice, echoTwice, flock).AtMost(1.25),
		allocs.Absolute("allocations here", ""),
	}, nil
}

// ClusterKill9 has another process hold a key, kills it with SIGKILL, and
// measures until this one, which has been waiting, has the key; beside flock,
// where the kernel does the same.
func ClusterKill9(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	n, err := openNode(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	times := measure.Samples{}
	for range l.Reps(5) {
		took := map[string][]time.Duration{}
		for round := range l.Scaled(20) {
			key := lab.Key("kill9", round)
			for name, wait := range map[string]func() (func() error, error){
				measure.Mega: func() (func() error, error) {
					lease, err := n.locks.Acquire(ctx, key, lock.Wait(lock.Forever))
					if err != nil {
						return nil, err
					}
					return lease.Release, nil
				},
				flock: func() (func() error, error) {
					return func() error { return unlockFile(n.file) }, lockFile(n.file)
				},
			} {
				at := lab.Meeting{Socket: n.socket, Key: key}
				if name == flock {
					at = lab.Meeting{File: n.file.Name()}
				}
				d, err := killHolder(at, wait)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				took[name] = append(took[name], d)
			}
		}
		for name, all := range took {
			times.Add(name, measure.Micros(measure.Median(all))/1000)
		}
	}
	return []measure.Claim{times.Absolute("from kill -9 to the next one's lock, p50", "ms", flock).AtMost(10)}, nil
}

// killHolder returns how long it takes from the death of a holder until wait
// returns.
func killHolder(at lab.Meeting, wait func() (release func() error, err error)) (time.Duration, error) {
	h, err := lab.StartHelper(HolderRole, at)
	if err != nil {
		return 0, err
	}
	type outcome struct {
		at      time.Time
		release func() error
		err     error
	}
	got := make(chan outcome, 1)
	go func() {
		release, err := wait()
		got <- outcome{time.Now(), release, err}
	}()
	time.Sleep(20 * time.Millisecond) // it is queued, and at rest as a waiter is
	start := time.Now()
	if err := h.Kill(); err != nil {
		return 0, err
	}
	o := <-got
	if o.err != nil {
		return 0, o.err
	}
	return o.at.Sub(start), o.release()
}
