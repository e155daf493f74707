package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/megaframework/mega/bench/internal/peers"
)

// WorkerRole makes this program a worker: another process, for rows that need
// several. It reads orders from its standard input, a line of JSON each, and
// answers each with a line.
const WorkerRole = "worker"

// Order is a command for a worker.
type Order struct {
	Do         string // one of the order words
	Contestant string
	Addr       string
	Key        string
	Goroutines int
	Own        bool // a key for each client of DoGrow
	Start      time.Time
	For        time.Duration
}

// The order words.
const (
	DoOpen    = "open"    // connect the contestant
	DoTake    = "take"    // acquire and release once; answers At
	DoContend = "contend" // acquire and release in turn, from Start on; answers Tally
	DoWait    = "wait"    // have goroutines wait, until DoLeave
	DoLeave   = "leave"
	DoJoin    = "join" // open clients until there are as many as goroutines
	DoGrow    = "grow" // have all clients acquire and release in turn, from Start on; answers Rate
	DoPart    = "part" // close the clients
)

// Answer is the answer of a worker.
type Answer struct {
	Error string    `json:",omitempty"`
	At    time.Time // when the key was acquired
	Tally Tally
	Rate  float64 // the cycles per second of the clients
}

// Worker is a process that executes orders.
type Worker struct {
	*child
	orders  *json.Encoder
	answers *json.Decoder
}

func startWorker() (*Worker, error) {
	c, err := start(WorkerRole)
	if err != nil {
		return nil, err
	}
	return &Worker{c, json.NewEncoder(c.in), json.NewDecoder(c.out)}, nil
}

// Send sends an order without waiting for its answer.
func (w *Worker) Send(o Order) error { return w.orders.Encode(o) }

// Receive waits for the answer to the oldest unanswered order.
func (w *Worker) Receive() (Answer, error) {
	var a Answer
	if err := w.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("read the answer of a worker: %w", err)
	}
	if a.Error != "" {
		return a, errors.New("worker: " + a.Error)
	}
	return a, nil
}

// Ask sends an order and waits for its answer.
func (w *Worker) Ask(o Order) error {
	if err := w.Send(o); err != nil {
		return err
	}
	_, err := w.Receive()
	return err
}

// Work is the worker's side.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	d := &desk{open: map[string]peers.Locker{}}
	defer d.close()
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o Order
		if err := orders.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		a, err := d.do(ctx, o)
		if err != nil {
			a.Error = fmt.Sprintf("%s %s: %v", o.Do, o.Contestant, err)
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// desk is the state of a worker.
type desk struct {
	open    map[string]peers.Locker
	clients clients
	leave   context.CancelFunc // ends the waiters, if there are any
	idle    sync.WaitGroup
}

func (d *desk) do(ctx context.Context, o Order) (Answer, error) {
	switch o.Do {
	case DoLeave:
		d.leave()
		d.idle.Wait()
		return Answer{}, nil
	case DoJoin:
		return Answer{}, d.clients.join(ctx, o)
	case DoGrow:
		rate, err := CyclesPerSecond(ctx, d.clients[:o.Goroutines], o)
		return Answer{Rate: rate}, err
	case DoPart:
		return Answer{}, d.clients.part()
	}
	l, err := d.locker(ctx, o)
	if err != nil {
		return Answer{}, err
	}
	switch o.Do {
	case DoOpen:
		return Answer{}, nil
	case DoTake:
		at, err := take(ctx, l, o.Key)
		return Answer{At: at}, err
	case DoContend:
		t, err := contend(ctx, l, o)
		return Answer{Tally: t}, err
	case DoWait:
		d.wait(ctx, l, o)
		return Answer{}, nil
	}
	return Answer{}, errors.New("no such order")
}

func (d *desk) locker(ctx context.Context, o Order) (peers.Locker, error) {
	if l, ok := d.open[o.Contestant]; ok {
		return l, nil
	}
	l, err := peers.Open(ctx, o.Contestant, o.Addr)
	if err == nil {
		d.open[o.Contestant] = l
	}
	return l, err
}

func (d *desk) close() {
	for _, l := range d.open {
		_ = l.Close() // the process ends
	}
	_ = d.clients.part()
}

// take acquires and releases, and reports when it had the key.
func take(ctx context.Context, l peers.Locker, key string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	release, err := l.Acquire(ctx, key)
	at := time.Now()
	if err != nil {
		return at, err
	}
	return at, release()
}

// wait starts goroutines that wait for a key until they are cancelled.
func (d *desk) wait(ctx context.Context, l peers.Locker, o Order) {
	l = peers.Patient(l)
	ctx, d.leave = context.WithCancel(ctx)
	for range o.Goroutines {
		d.idle.Go(func() {
			for ctx.Err() == nil {
				// Some contestants give up after a TTL, and try
				// again.
				if release, err := l.Acquire(ctx, o.Key); err == nil {
					_ = release()
				}
			}
		})
	}
}
