// Package growth measures how the cost of a lock grows, with the clients that
// want one and with the keys that are held.
package growth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
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

// group is a number of clients that acquire and release in turn. run returns
// the cycles per second, of all on one key or of each on its own.
type group interface {
	run(ctx context.Context, clients int, key string, own bool, d time.Duration) (rate float64, err error)
}

// growth measures the cost of a cycle for each number of clients, on one key and
// on as many keys as clients.
func growth(ctx context.Context, l *lab.Lab, g group) ([]measure.Claim, error) {
	counts := clientCounts()
	if _, err := g.run(ctx, slices.Max(counts), lab.Key("growth"), false, 0); err != nil { // connections and scripts are new
		return nil, err
	}
	oneKey, ownKeys := costs{}, costs{}
	for rep := range l.Reps(5) {
		for _, i := range measure.Turn(len(counts), rep) {
			for own, c := range map[bool]costs{false: oneKey, true: ownKeys} {
				rate, err := g.run(ctx, counts[i], lab.Key("growth", rep, counts[i]), own, l.Slice(300*time.Millisecond))
				if err != nil {
					return nil, fmt.Errorf("%d clients: %w", counts[i], err)
				}
				c[counts[i]] = append(c[counts[i]], 1e6/rate)
			}
		}
	}
	return []measure.Claim{
		oneKey.claim("1 000 clients of one key, per cycle").AtMost(1.5),
		ownKeys.claim("1 000 clients of a key each, per cycle").AtMost(1.5),
	}, nil
}

// costs are the microseconds per cycle, by the number of clients.
type costs map[int][]float64

func (c costs) claim(name string) measure.Claim {
	s := measure.Samples{measure.Mega: c[1000], fewClients: c[10], someClients: c[100]}
	line := measure.Curve{Name: measure.Mega}
	for _, n := range clientCounts() {
		line.Points = append(line.Points, measure.Point{X: float64(n), Y: measure.Median(c[n])})
	}
	return s.Ratio(name, "µs", fewClients, fewClients, someClients).Over("clients", line)
}

// Memory has goroutines of one process as clients.
func Memory(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		return nil, err
	}
	claims, err := growth(ctx, l, goroutines{peers.NewMega(locks)})
	return claims, errors.Join(err, locks.Close(ctx))
}

// goroutines is a group of goroutines that share a locker.
type goroutines struct{ peers.Locker }

func (g goroutines) run(ctx context.Context, clients int, key string, own bool, d time.Duration) (float64, error) {
	all := make([]peers.Locker, clients)
	for i := range all {
		all[i] = g.Locker
	}
	return lab.CyclesPerSecond(ctx, all, lab.Order{Key: key, Own: own, Start: time.Now(), For: d})
}

// Redis has clients in 4 processes, each with connections of its own.
func Redis(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	server, err := l.RedisWith(redistest.Options{Config: []string{"tcp-backlog 4096"}}) // 1 000 clients connect at once
	if err != nil {
		return nil, err
	}
	staff, err := l.Staff(4)
	if err != nil {
		return nil, err
	}
	return growth(ctx, l, &processes{staff: staff, contestant: measure.Mega, addr: server.Addr()})
}

// Cluster has clients in 4 processes, each with a connection of its own to
// the hub in another one.
func Cluster(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "s")
	hub, err := lab.StartHelper(lab.HubRole, lab.Meeting{Socket: socket})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hub.Stop()) }()
	staff, err := l.Staff(4)
	if err != nil {
		return nil, err
	}
	g := &processes{staff: staff, contestant: peers.MegaCluster, addr: socket}
	defer func() { err = errors.Join(err, g.leave()) }() // before the hub does
	return growth(ctx, l, g)
}

// processes is a group of clients in other processes.
type processes struct {
	staff            []*lab.Worker
	contestant, addr string
}

// run gives each process its share of the clients.
func (p *processes) run(ctx context.Context, clients int, key string, own bool, d time.Duration) (rate float64, err error) {
	o := lab.Order{Contestant: p.contestant, Addr: p.addr, Key: key, Own: own, For: d}
	o.Do = lab.DoJoin
	if err := p.ask(clients, o, nil); err != nil {
		return 0, err
	}
	o.Do, o.Start = lab.DoGrow, time.Now().Add(50*time.Millisecond)
	err = p.ask(clients, o, func(a lab.Answer) { rate += a.Rate })
	return rate, err
}

func (p *processes) leave() error { return p.ask(0, lab.Order{Do: lab.DoPart}, nil) }

// ask gives all processes an order for their clients, and waits for their
// answers.
func (p *processes) ask(clients int, o lab.Order, take func(lab.Answer)) error {
	for i, w := range p.staff {
		o.Goroutines = (clients*(i+1))/len(p.staff) - clients*i/len(p.staff)
		if err := w.Send(o); err != nil {
			return err
		}
	}
	var errs []error
	for _, w := range p.staff {
		a, err := w.Receive()
		errs = append(errs, err)
		if take != nil {
			take(a)
		}
	}
	return errors.Join(errs...)
}
