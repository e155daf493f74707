// Package lab is the environment of a row: servers, and other processes of this
// program.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// Lab is the environment of a row: a server and other processes, started on
// first use and stopped with the row.
type Lab struct {
	measure.Scale
	server  *redistest.Server
	distant *remote // takes the place of the server
	open    map[string]peers.Locker
	workers []*Worker
	broker  *remote
}

// New returns a lab in which nothing has been started.
func New(quick bool) *Lab {
	return &Lab{Scale: measure.Scale{Quick: quick}, open: map[string]peers.Locker{}}
}

// Run runs a measurement in a new lab.
func Run(ctx context.Context, quick bool, run func(context.Context, *Lab) ([]measure.Claim, error)) (claims []measure.Claim, err error) {
	l := New(quick)
	defer func() { err = errors.Join(err, l.Close()) }()
	return run(ctx, l)
}

// Redis returns the server, without persistence, on a free loopback port.
func (l *Lab) Redis() (*redistest.Server, error) {
	if l.server != nil {
		return l.server, nil
	}
	return l.RedisWith(redistest.Options{})
}

// RedisWith starts the server with options of its own, before anything else uses it.
func (l *Lab) RedisWith(o redistest.Options) (s *redistest.Server, err error) {
	l.server, err = redistest.New(o)
	return l.server, err
}

// Distant makes the server one behind a network that delays each direction by half of
// a round trip. It does not limit the throughput.
func (l *Lab) Distant(roundTrip time.Duration) (err error) {
	l.distant, err = startRemote(DistantRole, roundTrip)
	return err
}

// Addr returns the address at which contestants reach the server.
func (l *Lab) Addr() (string, error) {
	if l.distant != nil {
		return l.distant.addr, nil
	}
	server, err := l.Redis()
	if err != nil {
		return "", err
	}
	return server.Addr(), nil
}

// NATS returns the address of a NATS server in a separate process.
func (l *Lab) NATS() (url string, err error) {
	if l.broker == nil {
		if l.broker, err = startRemote(BrokerRole, nil); err != nil {
			return "", err
		}
	}
	return l.broker.addr, nil
}

// Locker returns a contestant of this process, connected to the lab's server.
func (l *Lab) Locker(ctx context.Context, name string) (peers.Locker, error) {
	if c, ok := l.open[name]; ok {
		return c, nil
	}
	addr, err := l.Addr()
	if err != nil {
		return nil, err
	}
	c, err := peers.Open(ctx, name, addr)
	if err != nil {
		return nil, err
	}
	l.open[name] = c
	return c, nil
}

// Lockers returns several contestants, in order.
func (l *Lab) Lockers(ctx context.Context, names ...string) ([]peers.Locker, error) {
	lockers := make([]peers.Locker, len(names))
	for i, name := range names {
		var err error
		if lockers[i], err = l.Locker(ctx, name); err != nil {
			return nil, err
		}
	}
	return lockers, nil
}

// Staff returns n other processes.
func (l *Lab) Staff(n int) ([]*Worker, error) {
	for len(l.workers) < n {
		w, err := startWorker()
		if err != nil {
			return nil, err
		}
		l.workers = append(l.workers, w)
	}
	return l.workers[:n], nil
}

// Close ends the processes and connections of the lab.
func (l *Lab) Close() error {
	var errs []error
	for _, w := range l.workers {
		errs = append(errs, w.Stop())
	}
	for name, c := range l.open {
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", name, err))
		}
	}
	if l.distant != nil {
		errs = append(errs, l.distant.Stop())
	}
	if l.server != nil {
		errs = append(errs, l.server.Close())
	}
	if l.broker != nil {
		errs = append(errs, l.broker.Stop())
	}
	return errors.Join(errs...)
}

// Key makes a name that no earlier repetition has used.
func Key(parts ...any) string {
	return strings.ReplaceAll(fmt.Sprintf("bench:%d:%v", os.Getpid(), parts), " ", ":")
}

// Reported returns a number that the server reports.
func Reported(s *redistest.Server, section, field string) (float64, error) {
	info, err := s.Info(section)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info[field], 64)
}
