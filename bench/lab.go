package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// lab is the environment of a row: a server and other processes, started on
// first use and stopped with the row.
type lab struct {
	quick   bool
	server  *redistest.Server
	network *redistest.Proxy // in front of the server; nil: loopback
	open    map[string]locker
	workers []*worker
	broker  *broker
}

// inLab runs a measurement in a new lab.
func inLab(ctx context.Context, quick bool, run func(context.Context, *lab) ([]claim, error)) (claims []claim, err error) {
	l := &lab{quick: quick, open: map[string]locker{}}
	defer func() { err = errors.Join(err, l.close()) }()
	return run(ctx, l)
}

// reps is how often a row repeats its measurement: an odd number, at least
// five, for the median.
func (l *lab) reps(n int) int {
	if l.quick {
		return 3
	}
	return n
}

// scaled returns a number of operations, reduced for a quick run.
func (l *lab) scaled(n int) int {
	if l.quick {
		return n / 4
	}
	return n
}

// slice is how long one contestant runs at a time.
func (l *lab) slice(d time.Duration) time.Duration {
	if l.quick {
		return d / 4
	}
	return d
}

// redis returns the server, without persistence, on a free loopback port.
func (l *lab) redis() (*redistest.Server, error) {
	if l.server == nil {
		s, err := redistest.New(redistest.Options{})
		if err != nil {
			return nil, err
		}
		l.server = s
	}
	return l.server, nil
}

// distant puts a network in front of the server, which delays each direction by
// half of a round trip. It does not limit the throughput.
func (l *lab) distant(roundTrip time.Duration) error {
	server, err := l.redis()
	if err != nil {
		return err
	}
	if l.network, err = redistest.NewProxy(server, nil); err != nil {
		return err
	}
	l.network.Delay(redistest.Requests, roundTrip/2)
	l.network.Delay(redistest.Replies, roundTrip/2)
	return nil
}

// addr returns the address at which contestants reach the server.
func (l *lab) addr() (string, error) {
	server, err := l.redis()
	switch {
	case err != nil:
		return "", err
	case l.network != nil:
		return l.network.Addr(), nil
	}
	return server.Addr(), nil
}

// nats returns the address of a NATS server in a separate process.
func (l *lab) nats() (url string, err error) {
	if l.broker == nil {
		if l.broker, err = startBroker(); err != nil {
			return "", err
		}
	}
	return l.broker.url, nil
}

// locker returns a contestant of this process, connected to the lab's server.
func (l *lab) locker(ctx context.Context, name string) (locker, error) {
	if c, ok := l.open[name]; ok {
		return c, nil
	}
	addr, err := l.addr()
	if err != nil {
		return nil, err
	}
	c, err := open(ctx, name, addr)
	if err != nil {
		return nil, err
	}
	l.open[name] = c
	return c, nil
}

// lockers returns several contestants, in order.
func (l *lab) lockers(ctx context.Context, names ...string) ([]locker, error) {
	lockers := make([]locker, len(names))
	for i, name := range names {
		var err error
		if lockers[i], err = l.locker(ctx, name); err != nil {
			return nil, err
		}
	}
	return lockers, nil
}

// staff returns n other processes.
func (l *lab) staff(n int) ([]*worker, error) {
	for len(l.workers) < n {
		w, err := startWorker()
		if err != nil {
			return nil, err
		}
		l.workers = append(l.workers, w)
	}
	return l.workers[:n], nil
}

func (l *lab) close() error {
	var errs []error
	for _, w := range l.workers {
		errs = append(errs, w.stop())
	}
	for name, c := range l.open {
		if err := c.close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", name, err))
		}
	}
	if l.network != nil {
		errs = append(errs, l.network.Close())
	}
	if l.server != nil {
		errs = append(errs, l.server.Close())
	}
	if l.broker != nil {
		errs = append(errs, l.broker.stop())
	}
	return errors.Join(errs...)
}

// turn returns the n contestants' numbers in an order that begins with another
// one each time, so that no contestant always runs directly after the same
// other one.
func turn(n, round int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round) % n
	}
	return order
}

// key makes a name that no earlier repetition has used.
func key(parts ...any) string {
	return strings.ReplaceAll(fmt.Sprintf("bench:%d:%v", os.Getpid(), parts), " ", ":")
}
