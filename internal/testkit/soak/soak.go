// Package soak keeps the processes of a node at work for a long time, with locks
// and messages at once, while they are killed, stopped and ended at random, and
// holds what they report against what was promised: no lock has two holders, the
// accounts of messages balance, and nothing grows.
//
// It has no part in a program; its test is what it is for. A [Worker] is what
// runs in each of the processes. The process that starts them has the hub and
// does the killing.
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
	Rest  = "rest"  // stop the load; answered with a Report once all is at rest
	Go    = "go"    // take it up again, and record the grants in the file named
	Calm  = "calm"  // publish so many messages, each of which has to arrive
	Count = "count" // how many of those have arrived so far: a Counts
	Stop  = "stop"  // drain, close and end
)

// Counts are the messages of the calm phase that a worker was given.
type Counts struct {
	Each  int // by the subscription that gets every message
	Group int // by the member of a group that shares them
}

// Report is what a worker has found out at rest.
type Report struct {
	Name       string
	Goroutines int
	Files      int // open descriptors; 0 where that is not known
	Heap       uint64

	Grants   uint64 // locks that it got
	Received uint64 // messages
	Answered uint64 // requests
	Failed   map[string]uint64
	// Wrong is what must not be: broken promises in words.
	Wrong []string
}

// Worker is a process at work.
type Worker struct {
	name   string
	locker *lock.Locker
	bus    *bus.Bus
	tally  *tally

	mu     sync.Mutex
	halt   context.CancelFunc // ends the load; nil at rest
	record *history.Recorder  // of the load
	load   sync.WaitGroup

	stop chan struct{}
	once sync.Once
}

// Run is the whole of a worker: it joins the node at conn, is at work until it is
// told to stop or the hub is gone, and leaves. Its grants go into the recording.
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

// leave ends everything in its order, with nothing cut off.
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

// work takes up the load, unless it goes on already.
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

// report says how things stand, once what is still on its way has arrived.
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

// settles waits until check is content, or long enough.
func (w *Worker) settles(check func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := check(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// balance checks that every message that a subscription has received became
// something.
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
