package nats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/suite"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// The variables that make a test binary a worker.
const (
	workerURL  = "MEGA_TEST_NATS_WORKER"
	workerTask = "MEGA_TEST_NATS_TASK"
)

// worker is the main function of a child: it serves until its input ends, or
// publishes and exits without a farewell.
func worker(url, task string) int {
	d, err := nats.OpenBus(context.Background(), nats.Config{URL: url})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b, err := bus.New(d, bus.Config{})
	if err == nil && task == "publish" {
		err = publishAndExit(b)
	} else if err == nil {
		err = serve(b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func publishAndExit(b *bus.Bus) error {
	for i := range 1000 {
		if err := b.Publish(context.Background(), "from.child", []byte(strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return b.Flush(context.Background())
}

// serve is a member of a group, which says what it has done, and a responder.
func serve(b *bus.Bus) error {
	ctx := context.Background()
	_, err := b.Subscribe(ctx, "work", func(ctx context.Context, m *bus.Msg) error {
		return b.Publish(ctx, "done", append([]byte(strconv.Itoa(os.Getpid())+" "), m.Data...))
	}, bus.Group("workers"))
	if err != nil {
		return err
	}
	_, err = b.Respond(ctx, "ask", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		if string(m.Data) == "hang" {
			if err := b.Publish(ctx, "hanging", []byte(strconv.Itoa(os.Getpid()))); err != nil {
				return nil, err
			}
			<-ctx.Done()
		}
		return []byte(strconv.Itoa(os.Getpid())), nil
	})
	if err != nil {
		return err
	}
	if err := b.Publish(ctx, "ready", []byte(strconv.Itoa(os.Getpid()))); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	return b.Drain(ctx)
}

// child is a worker in a process of its own.
type child struct {
	*redistest.Process
	pid string
}

func startWorker(t *testing.T, url, task string) *redistest.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerURL+"="+url, workerTask+"="+task)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); _ = stdin.Close() })
	return p
}

// startWorkers starts workers, and returns when they serve.
func startWorkers(t *testing.T, b *bus.Bus, url string, n int) (workers []child) {
	t.Helper()
	ready := listen(t, b, "ready")
	for range n {
		p := startWorker(t, url, "serve")
		workers = append(workers, child{p, string(next(t, ready).Data)})
	}
	return workers
}

// ledger is what was done, and by whom.
type ledger struct {
	mu   sync.Mutex // guards done
	done map[int]string
}

func keepLedger(t *testing.T, b *bus.Bus) *ledger {
	t.Helper()
	l := &ledger{done: map[int]string{}}
	_, err := b.Subscribe(t.Context(), "done", func(_ context.Context, m *bus.Msg) error {
		var pid string
		var n int
		if _, err := fmt.Sscan(string(m.Data), &pid, &n); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if before, twice := l.done[n]; twice {
			t.Errorf("%d was handled by %s and by %s", n, before, pid)
		}
		l.done[n] = pid
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// count is how many of the numbers from..to are done, and by how many.
func (l *ledger) count(from, to int) (n int, by map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by = map[string]int{}
	for i := from; i <= to; i++ {
		if pid, ok := l.done[i]; ok {
			n++
			by[pid]++
		}
	}
	return n, by
}

// A worker that is killed takes with it what it had; from then on the others
// get everything.
func TestKilledWorkerLosesOnlyItsOwnMessages(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b := open(t, nats.Config{URL: server.URL()})
	l := keepLedger(t, b)
	workers := startWorkers(t, b, server.URL(), 3)
	n := max(suite.Scaled(3000), 300)
	for i := 1; i <= n; i++ {
		publish(t, b, "work", strconv.Itoa(i))
		if i == n/2 {
			await(t, func() bool { _, by := l.count(1, i); return by[workers[0].pid] > 0 })
			if err := workers[0].Kill(); err != nil {
				t.Fatal(err)
			}
			await(t, func() bool { return server.Clients() == 3 }) // the server knows
		}
	}
	await(t, func() bool { done, _ := l.count(n/2+1, n); return done == n-n/2 })
	if _, by := l.count(1, n); len(by) != 3 || by[workers[1].pid] < n/12 || by[workers[2].pid] < n/12 {
		t.Errorf("the shares are %v", by)
	}
	if _, by := l.count(n/2+1, n); by[workers[0].pid] > 0 {
		t.Errorf("the dead one has handled %d", by[workers[0].pid])
	}
}

// NATS tells nobody that a responder has died: who asked waits for the
// deadline, and the next request goes elsewhere.
func TestRequestToAKilledWorkerEndsAtItsDeadline(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b := open(t, nats.Config{URL: server.URL()})
	workers := startWorkers(t, b, server.URL(), 2)
	hanging := listen(t, b, "hanging")
	failed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // within which a worker has the request
	defer cancel()
	go func() { _, err := b.Request(ctx, "ask", []byte("hang")); failed <- err }()
	victim := string(next(t, hanging).Data)
	for _, w := range workers {
		if w.pid == victim {
			if err := w.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	deadline, _ := ctx.Deadline()
	if err := <-failed; !errors.Is(err, bus.ErrTimeout) || time.Until(deadline) > 0 {
		t.Errorf("got %v, %v before the deadline", err, time.Until(deadline))
	}
	for range 20 {
		m, err := b.Request(t.Context(), "ask", nil)
		if err != nil || string(m.Data) == victim {
			t.Errorf("the next request: %v, %v", m, err)
		}
	}
}

// A worker that stands still disturbs nobody else.
func TestPausedWorkerDisturbsNobody(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b := open(t, nats.Config{URL: server.URL()})
	workers := startWorkers(t, b, server.URL(), 2)
	var healthy atomic.Int64
	if _, err := b.Subscribe(t.Context(), "work", func(context.Context, *bus.Msg) error { healthy.Add(1); return nil }); err != nil {
		t.Fatal(err)
	}
	l := keepLedger(t, b)
	if err := workers[0].Pause(); err != nil {
		t.Fatal(err)
	}
	n := max(suite.Scaled(2000), 200)
	began := time.Now()
	for i := 1; i <= n; i++ {
		publish(t, b, "work", strconv.Itoa(i))
	}
	await(t, func() bool { return healthy.Load() == int64(n) })
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the others took %v", took)
	}
	if err := workers[0].Continue(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { done, _ := l.count(1, n); return done == n }) // also what had waited for it
}

// What was flushed is delivered, though its publisher is gone at once.
func TestFlushedMessagesSurviveTheirPublisher(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	b := open(t, nats.Config{URL: server.URL()})
	got := listen(t, b, "from.*")
	startWorker(t, server.URL(), "publish")
	for i := range 1000 {
		if m := next(t, got); string(m.Data) != strconv.Itoa(i) {
			t.Fatalf("message %d is %q", i, m.Data)
		}
	}
}
