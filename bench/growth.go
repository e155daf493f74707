package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// clientCounts are the numbers of clients under which the cost of a cycle must
// stay the same.
func clientCounts() []int { return []int{10, 100, 1000} }

const (
	fewClients  = "10 clients"
	someClients = "100 clients"
)

// settling is how long clients run before their cycles count: until all of them
// are in the queue.
func (o order) settling() time.Duration {
	if o.Own {
		return 100 * time.Millisecond
	}
	return 300 * time.Millisecond
}

// group is a number of clients that acquire and release in turn. run returns
// the cycles per second, of all on one key or of each on its own.
type group interface {
	run(ctx context.Context, clients int, key string, own bool, d time.Duration) (rate float64, err error)
}

// growth measures the cost of a cycle for each number of clients, on one key and
// on as many keys as clients.
func growth(ctx context.Context, l *lab, g group) ([]claim, error) {
	counts := clientCounts()
	if _, err := g.run(ctx, slices.Max(counts), key("growth"), false, 0); err != nil { // connections and scripts are new
		return nil, err
	}
	oneKey, ownKeys := costs{}, costs{}
	for rep := range l.reps(5) {
		for _, i := range turn(len(counts), rep) {
			for own, c := range map[bool]costs{false: oneKey, true: ownKeys} {
				rate, err := g.run(ctx, counts[i], key("growth", rep, counts[i]), own, l.slice(300*time.Millisecond))
				if err != nil {
					return nil, fmt.Errorf("%d clients: %w", counts[i], err)
				}
				c[counts[i]] = append(c[counts[i]], 1e6/rate)
			}
		}
	}
	return []claim{
		oneKey.claim("1 000 clients of one key, per cycle").atMost(1.5),
		ownKeys.claim("1 000 clients of a key each, per cycle").atMost(1.5),
	}, nil
}

// costs are the microseconds per cycle, by the number of clients.
type costs map[int][]float64

func (c costs) claim(name string) claim {
	s := samples{mega: c[1000], fewClients: c[10], someClients: c[100]}
	line := curve{Name: mega}
	for _, n := range clientCounts() {
		line.Points = append(line.Points, point{float64(n), median(c[n])})
	}
	return s.ratio(name, "µs", fewClients, fewClients, someClients).over("clients", line)
}

// memoryGrowth has goroutines of one process as clients.
func memoryGrowth(ctx context.Context, l *lab) ([]claim, error) {
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		return nil, err
	}
	claims, err := growth(ctx, l, goroutines{&megaLock{locks, []lock.Option{lock.Wait(lock.Forever)}}})
	return claims, errors.Join(err, locks.Close(ctx))
}

// goroutines is a group of goroutines that share a locker.
type goroutines struct{ locker }

func (g goroutines) run(ctx context.Context, clients int, key string, own bool, d time.Duration) (float64, error) {
	all := make([]locker, clients)
	for i := range all {
		all[i] = g.locker
	}
	return cyclesPerSecond(ctx, all, order{Key: key, Own: own, Start: time.Now(), For: d})
}

// redisGrowth has clients in 4 processes, each with connections of its own.
func redisGrowth(ctx context.Context, l *lab) ([]claim, error) {
	var err error
	l.server, err = redistest.New(redistest.Options{Config: []string{"tcp-backlog 4096"}}) // 1 000 clients connect at once
	if err != nil {
		return nil, err
	}
	staff, err := l.staff(4)
	if err != nil {
		return nil, err
	}
	return growth(ctx, l, &processes{staff: staff, contestant: mega, addr: l.server.Addr()})
}

// clusterGrowth has clients in 4 processes, each with a connection of its own to
// the hub in another one.
func clusterGrowth(ctx context.Context, l *lab) (claims []claim, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "s")
	hub, err := startHelper(hubArg, meeting{Socket: socket})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hub.stop()) }()
	staff, err := l.staff(4)
	if err != nil {
		return nil, err
	}
	g := &processes{staff: staff, contestant: megaCluster, addr: socket}
	defer func() { err = errors.Join(err, g.leave()) }() // before the hub does
	return growth(ctx, l, g)
}

// processes is a group of clients in other processes.
type processes struct {
	staff            []*worker
	contestant, addr string
}

// run gives each process its share of the clients.
func (p *processes) run(ctx context.Context, clients int, key string, own bool, d time.Duration) (rate float64, err error) {
	o := order{Contestant: p.contestant, Addr: p.addr, Key: key, Own: own, For: d}
	o.Do = doJoin
	if err := p.ask(clients, o, nil); err != nil {
		return 0, err
	}
	o.Do, o.Start = doGrow, time.Now().Add(50*time.Millisecond)
	err = p.ask(clients, o, func(a answer) { rate += a.Rate })
	return rate, err
}

func (p *processes) leave() error { return p.ask(0, order{Do: doPart}, nil) }

// ask gives all processes an order for their clients, and waits for their
// answers.
func (p *processes) ask(clients int, o order, take func(answer)) error {
	for i, w := range p.staff {
		o.Goroutines = (clients*(i+1))/len(p.staff) - clients*i/len(p.staff)
		if err := w.send(o); err != nil {
			return err
		}
	}
	var errs []error
	for _, w := range p.staff {
		a, err := w.receive()
		errs = append(errs, err)
		if take != nil {
			take(a)
		}
	}
	return errors.Join(errs...)
}

// clients are the clients of a worker. They stay open from one order to the next.
type clients []locker

// join opens clients until there are enough.
func (c *clients) join(ctx context.Context, o order) error {
	for len(*c) < o.Goroutines {
		l, err := open(ctx, o.Contestant, o.Addr)
		if err != nil {
			return err
		}
		*c = append(*c, l)
	}
	return nil
}

func (c *clients) part() error {
	errs := make([]error, len(*c))
	var wg sync.WaitGroup
	for i, l := range *c {
		wg.Go(func() { errs[i] = l.close() })
	}
	wg.Wait()
	*c = nil
	return errors.Join(errs...)
}

// cyclesPerSecond has all clients acquire and release in turn, and counts their
// cycles when all of them are in the queue.
func cyclesPerSecond(ctx context.Context, all []locker, o order) (rate float64, err error) {
	time.Sleep(time.Until(o.Start))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		cycles atomic.Int64
		wg     sync.WaitGroup
		errs   = make([]error, len(all))
	)
	for i, l := range all {
		key := o.Key
		if o.Own {
			key += ":" + strconv.Itoa(os.Getpid()) + ":" + strconv.Itoa(i)
		}
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				if _, _, errs[i] = timed(ctx, l, key); errs[i] == nil {
					cycles.Add(1)
				}
			}
			if ctx.Err() != nil {
				errs[i] = nil // the end ends a wait
			}
		})
	}
	time.Sleep(o.settling())
	before, began := cycles.Load(), time.Now()
	time.Sleep(o.For)
	rate = float64(cycles.Load()-before) / time.Since(began).Seconds()
	cancel()
	wg.Wait()
	return rate, errors.Join(errs...)
}
