package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// workerArg makes this program a worker: another process, for rows that need
// several. It reads orders from its standard input, a line of JSON each, and
// answers each with a line.
const workerArg = "worker"

// order is a command for a worker.
type order struct {
	Do         string // one of the order words
	Contestant string
	Addr       string
	Key        string
	Goroutines int
	Own        bool // a key for each client of doGrow
	Start      time.Time
	For        time.Duration
}

// The order words.
const (
	doOpen    = "open"    // connect the contestant
	doTake    = "take"    // acquire and release once; answers At
	doContend = "contend" // acquire and release in turn, from Start on; answers Tally
	doWait    = "wait"    // have goroutines wait, until doLeave
	doLeave   = "leave"
	doJoin    = "join" // open clients until there are as many as goroutines
	doGrow    = "grow" // have all clients acquire and release in turn, from Start on; answers Rate
	doPart    = "part" // close the clients
)

// answer is the answer of a worker.
type answer struct {
	Error string    `json:",omitempty"`
	At    time.Time // when the key was acquired
	Tally tally
	Rate  float64 // the cycles per second of the clients
}

// worker is a process that executes orders.
type worker struct {
	process *redistest.Process
	orders  *json.Encoder
	answers *json.Decoder
	stdin   io.Closer
}

func startWorker() (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	cmd := exec.Command(self, workerArg)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		return nil, err
	}
	return &worker{p, json.NewEncoder(stdin), json.NewDecoder(stdout), stdin}, nil
}

// send sends an order without waiting for its answer.
func (w *worker) send(o order) error { return w.orders.Encode(o) }

// receive waits for the answer to the oldest unanswered order.
func (w *worker) receive() (answer, error) {
	var a answer
	if err := w.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("read the answer of a worker: %w", err)
	}
	if a.Error != "" {
		return a, errors.New("worker: " + a.Error)
	}
	return a, nil
}

// ask sends an order and waits for its answer.
func (w *worker) ask(o order) error {
	if err := w.send(o); err != nil {
		return err
	}
	_, err := w.receive()
	return err
}

func (w *worker) stop() error {
	_ = w.stdin.Close() // the end of its orders is the worker's end
	select {
	case <-w.process.Done():
		return w.process.Wait()
	case <-time.After(5 * time.Second):
		return w.process.Kill()
	}
}

// work is the worker's side.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	d := &desk{open: map[string]locker{}}
	defer d.close()
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
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
	open    map[string]locker
	clients clients
	leave   context.CancelFunc // ends the waiters, if there are any
	idle    sync.WaitGroup
}

func (d *desk) do(ctx context.Context, o order) (answer, error) {
	switch o.Do {
	case doLeave:
		d.leave()
		d.idle.Wait()
		return answer{}, nil
	case doJoin:
		return answer{}, d.clients.join(ctx, o)
	case doGrow:
		rate, err := cyclesPerSecond(ctx, d.clients[:o.Goroutines], o)
		return answer{Rate: rate}, err
	case doPart:
		return answer{}, d.clients.part()
	}
	l, err := d.locker(ctx, o)
	if err != nil {
		return answer{}, err
	}
	switch o.Do {
	case doOpen:
		return answer{}, nil
	case doTake:
		at, err := take(ctx, l, o.Key)
		return answer{At: at}, err
	case doContend:
		t, err := contend(ctx, l, o)
		return answer{Tally: t}, err
	case doWait:
		d.wait(ctx, l, o)
		return answer{}, nil
	}
	return answer{}, errors.New("no such order")
}

func (d *desk) locker(ctx context.Context, o order) (locker, error) {
	if l, ok := d.open[o.Contestant]; ok {
		return l, nil
	}
	l, err := open(ctx, o.Contestant, o.Addr)
	if err == nil {
		d.open[o.Contestant] = l
	}
	return l, err
}

func (d *desk) close() {
	for _, l := range d.open {
		_ = l.close() // the process ends
	}
	_ = d.clients.part()
}

// take acquires and releases, and reports when it had the key.
func take(ctx context.Context, l locker, key string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	release, err := l.acquire(ctx, key)
	at := time.Now()
	if err != nil {
		return at, err
	}
	return at, release()
}

// wait starts goroutines that wait for a key until they are cancelled.
func (d *desk) wait(ctx context.Context, l locker, o order) {
	if r, ok := l.(*rueidislockLock); ok {
		l = r.patient()
	}
	ctx, d.leave = context.WithCancel(ctx)
	for range o.Goroutines {
		d.idle.Go(func() {
			for ctx.Err() == nil {
				// Some contestants give up after a TTL, and try
				// again.
				if release, err := l.acquire(ctx, o.Key); err == nil {
					_ = release()
				}
			}
		})
	}
}
