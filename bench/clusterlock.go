package main

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

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/lock"
)

// The arguments that make this program an echo at meeting.Socket, and a holder of
// a key there or of meeting.File.
const (
	echoArg   = "echo"
	holderArg = "holder"
)

// The contestants on one node.
const (
	echoTwice = "2 echoes"
	flock     = "flock"
)

// echoSize is how large a question to a hub is, about, and its answer.
const echoSize = 80

func serveEcho(ctx context.Context, in io.Reader, out io.Writer) error {
	return serveAt(in, out, func(at meeting) (func() error, error) {
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

func serveHolder(ctx context.Context, in io.Reader, out io.Writer) error {
	return serveAt(in, out, func(at meeting) (func() error, error) {
		if at.File != "" {
			f, err := os.OpenFile(at.File, os.O_RDWR, 0)
			if err != nil {
				return nil, err
			}
			return f.Close, lockFile(f)
		}
		l, err := openClusterLock(ctx, at.Socket)
		if err != nil {
			return nil, err
		}
		_, err = l.Acquire(ctx, at.Key)
		return func() error { return l.Close(ctx) }, err
	})
}

// openClusterLock is mega on a cluster, as its users open it.
func openClusterLock(ctx context.Context, socket string) (*lock.Locker, error) {
	n, err := cluster.Dial(ctx, cluster.Config{Socket: socket})
	if err != nil {
		return nil, err
	}
	return lock.New(wholeLock{n.Lock(), n}, lock.Config{TTL: ttl})
}

// wholeLock is a node's lock that ends with the node.
type wholeLock struct {
	*cluster.Lock
	node *cluster.Node
}

func (w wholeLock) Close(ctx context.Context) error {
	return errors.Join(w.Lock.Close(ctx), w.node.Close(ctx))
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
	for arg, socket := range map[string]string{hubArg: n.socket, echoArg: filepath.Join(dir, "e")} {
		h, err := startHelper(arg, meeting{Socket: socket})
		if err != nil {
			return n, err
		}
		n.closers = append(n.closers, h.stop)
	}
	if n.echo, err = (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "e")); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.echo.Close)
	if n.file, err = os.OpenFile(filepath.Join(dir, "file"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.file.Close)
	if n.locks, err = openClusterLock(ctx, n.socket); err == nil {
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

// clusterAlone takes and releases one free key at a time, beside two round trips
// to an echo in another process over the same kind of socket; the contestants
// alternate operation by operation.
func clusterAlone(ctx context.Context, l *lab) (claims []claim, err error) {
	n, err := openNode(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	names := []string{mega, echoTwice, flock}
	cycle := func() error { return acquireRelease(ctx, n.locks) }
	ops := map[string]func() error{mega: cycle, echoTwice: n.echoTwice, flock: n.flockCycle}
	cycles, allocs := samples{}, samples{}
	for range l.reps(9) {
		took := map[string][]time.Duration{}
		for round := range l.scaled(4000) {
			for _, i := range turn(len(names), round) {
				start := time.Now()
				if err := ops[names[i]](); err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				took[names[i]] = append(took[names[i]], time.Since(start))
			}
		}
		for _, name := range names {
			cycles.add(name, micros(median(took[name])))
		}
		count, err := allocations(l.scaled(4000), each(cycle))
		if err != nil {
			return nil, err
		}
		allocs.add(mega, count)
	}
	return []claim{
		cycles.ratio("whole cycle, p50", "µs", echoTwice, echoTwice, flock).atMost(2),
		allocs.absolute("allocations here", ""),
	}, nil
}

// clusterKill9 has another process hold a key, kills it with SIGKILL, and
// measures until this one, which has been waiting, has the key; beside flock,
// where the kernel does the same.
func clusterKill9(ctx context.Context, l *lab) (claims []claim, err error) {
	n, err := openNode(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	times := samples{}
	for range l.reps(5) {
		took := map[string][]time.Duration{}
		for round := range l.scaled(20) {
			key := key("kill9", round)
			for name, wait := range map[string]func() (func() error, error){
				mega: func() (func() error, error) {
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
				at := meeting{Socket: n.socket, Key: key}
				if name == flock {
					at = meeting{File: n.file.Name()}
				}
				d, err := killHolder(at, wait)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				took[name] = append(took[name], d)
			}
		}
		for name, all := range took {
			times.add(name, micros(median(all))/1000)
		}
	}
	return []claim{times.absolute("from kill -9 to the next one's lock, p50", "ms", flock).atMost(10)}, nil
}

// killHolder returns how long it takes from the death of a holder until wait
// returns.
func killHolder(at meeting, wait func() (release func() error, err error)) (time.Duration, error) {
	h, err := startHelper(holderArg, at)
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
	if err := h.process.Kill(); err != nil {
		return 0, err
	}
	o := <-got
	if o.err != nil {
		return 0, o.err
	}
	return o.at.Sub(start), o.release()
}
