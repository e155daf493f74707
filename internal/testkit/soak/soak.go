// Package soak is a long test of the processes of a node. They use locks and
// messages while the test kills, stops and ends them at random. The test compares
// their reports with the contract: no lock and no term has two holders, no tick runs
// twice, each received message is accounted for, and nothing grows.
//
// Programs do not use this package. Each process of the test runs a [Worker]. The
// process that starts the workers has the hub, and kills them.
package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
)

// The calls that a Worker answers.
const (
	Rest  = "rest"  // stop the load; answered with a Report when the worker is idle
	Go    = "go"    // start the load again, and record the grants in the given file
	Calm  = "calm"  // publish this number of messages; each has to arrive
	Count = "count" // the number of those that have arrived: a Counts
	Stop  = "stop"  // drain, close and end
)

// Counts contains the numbers of messages that a worker received in the calm phase.
type Counts struct {
	Each  int // by the subscription that gets every message
	Group int // by the member of a group that shares them
}

// Report describes an idle worker.
type Report struct {
	Name       string
	Goroutines int
	Files      int // open descriptors; 0 where that is not known
	Heap       uint64

	Grants   uint64 // locks that it obtained
	Received uint64 // messages
	Answered uint64 // requests
	Failed   map[string]uint64
	// Wrong lists violations of the contract, as sentences.
	Wrong []string
}

// Worker is the load of one process.
type Worker struct {
	name   string
	locker *lock.Locker
	bus    *bus.Bus
	tally  *tally

	mu     sync.Mutex
	halt   context.CancelFunc // ends the load; nil while idle
	record *history.Recorder  // of the load
	load   sync.WaitGroup

	stop chan struct{}
	once sync.Once
}

// Run joins the node at conn and uses locks and messages until it receives Stop or
// the hub ends, then leaves the node. It records its grants.
func Run(ctx context.Context, name string, c cluster.Config, recording string) error {
	w := &Worker{name: name, tally: newTally(), stop: make(chan struct{})}
	living, die := context.WithCancel(ctx)
	var pulse sync.WaitGroup
	pulse.Go(func() { w.tally.pulse(living) })
	defer pulse.Wait()
	defer die()
	opened := make(chan struct{})
	c.Handle = func(ctx context.Context, _ *cluster.Client, call string, body []byte) ([]byte, error) {
		<-opened
		return w.answer(ctx, call, body)
	}
	node, err := cluster.Dial(ctx, c)
	if err != nil {
		return err
	}
	if err := w.open(ctx, node); err != nil {
		return err
	}
	if err := w.work(recording); err != nil {
		return err
	}
	close(opened)
	select {
	case <-w.stop:
	case <-node.Done():
		return errors.New("the hub is gone")
	}
	return w.leave(node)
}

func (w *Worker) open(ctx context.Context, node *cluster.Node) (err error) {
	if w.locker, err = lock.New(node.Lock(), lock.Config{TTL: ttl}); err != nil {
		return err
	}
	if w.bus, err = bus.New(node.Bus(), bus.Config{}); err != nil {
		return err
	}
	return w.subscribe(ctx)
}

// leave drains the bus, then closes it and the locks.
func (w *Worker) leave(node *cluster.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(w.rest(), w.bus.Drain(ctx), w.bus.Close(), w.locker.Close(ctx), node.Close(ctx))
}

func (w *Worker) answer(ctx context.Context, call string, body []byte) ([]byte, error) {
	switch call {
	case Rest:
		if err := w.rest(); err != nil {
			return nil, err
		}
		return json.Marshal(w.report())
	case Go:
		return nil, w.work(string(body))
	case Calm:
		var n int
		if err := json.Unmarshal(body, &n); err != nil {
			return nil, err
		}
		return nil, w.calm(ctx, n)
	case Count:
		return json.Marshal(w.tally.counts())
	case Stop:
		w.once.Do(func() { close(w.stop) })
		return nil, nil
	}
	return nil, fmt.Errorf("there is no call %q", call)
}

// work starts the load, unless it runs already.
func (w *Worker) work(recording string) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.halt != nil {
		return nil
	}
	if w.record, err = history.NewRecorder(recording, w.name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.halt = cancel
	for i := range lockers {
		client := history.NewClient(fmt.Sprint(w.name, "/", i), w.locker, w.record)
		w.load.Go(func() { w.lockAll(ctx, client) })
	}
	candidate := history.NewClient(w.name+"/candidate", w.locker, w.record)
	w.load.Go(func() { w.leadAll(ctx, candidate) })
	runner := history.NewClient(w.name+"/runner", w.locker, w.record)
	w.load.Go(func() { w.runAll(ctx, runner) })
	w.load.Go(func() { w.publishAll(ctx) })
	w.load.Go(func() { w.requestAll(ctx) })
	return nil
}

// rest ends the load and waits for its end.
func (w *Worker) rest() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.halt == nil {
		return nil
	}
	w.halt()
	w.halt = nil
	w.load.Wait()
	return w.record.Close()
}

// report returns a Report after the messages and leases on their way have settled.
func (w *Worker) report() Report {
	w.tally.expect("locks at rest", w.settles(func() error {
		if s := w.locker.Stats(); s.Active+s.Waiting > 0 {
			return fmt.Errorf("%d leases and %d waiters are left", s.Active, s.Waiting)
		}
		return nil
	}))
	w.tally.expect("messages at rest", w.settles(w.balance))
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r := w.tally.report()
	r.Name, r.Goroutines, r.Files, r.Heap = w.name, runtime.NumGoroutine(), openFiles(), m.HeapAlloc
	return r
}

// settles waits until check returns nil, for a bounded time.
func (w *Worker) settles(check func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := check(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// balance checks that the counters of each subscription account for every message
// that it received.
func (w *Worker) balance() error {
	s := w.bus.Stats()
	if s.InFlight > 0 {
		return fmt.Errorf("%d requests are in flight", s.InFlight)
	}
	for _, sub := range s.Subs {
		if out := sub.Handled + sub.Dropped + sub.Expired + sub.Discarded; sub.Received != out || sub.Pending+sub.Running > 0 {
			return fmt.Errorf("subscription %s: %d received, but %d handled, %d dropped, %d expired, %d discarded, %d pending, %d running",
				sub.Name, sub.Received, sub.Handled, sub.Dropped, sub.Expired, sub.Discarded, sub.Pending, sub.Running)
		}
	}
	return nil
}
