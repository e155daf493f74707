//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// busWorker is the main function of a child: it serves until its input ends, or
// publishes and exits without a farewell.
func busWorker(task string) int {
	if err := runBusWorker(task); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runBusWorker(task string) error {
	if task == "hub" {
		return serveAsHub()
	}
	conn, err := Inherited(3)
	if err != nil {
		return err
	}
	n, err := Dial(context.Background(), Config{Conn: conn})
	if err != nil {
		return err
	}
	b, err := bus.New(busOf{n.Bus(), n}, bus.Config{})
	if err != nil {
		return err
	}
	if task == "publish" {
		return publishAndExit(b)
	}
	return serveOnBus(b)
}

// serveAsHub is the first to come to a socket.
func serveAsHub() error {
	n, err := Dial(context.Background(), Config{Socket: os.Getenv("MEGA_TEST_CLUSTER_SOCKET")})
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	return n.Close(context.Background())
}

func publishAndExit(b *bus.Bus) error {
	for i := range 1000 {
		if err := b.Publish(context.Background(), "from.child", []byte(strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return b.Flush(context.Background())
}

// serveOnBus is a member of a group, which says what it has done, a listener that
// counts, and a responder.
func serveOnBus(b *bus.Bus) error {
	ctx := context.Background()
	pid := strconv.Itoa(os.Getpid())
	var mu sync.Mutex
	var handled, missed int
	_, err := b.Subscribe(ctx, "tick", func(_ context.Context, m *bus.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		handled++
		missed += m.Missed
		return nil
	})
	for pattern, r := range map[string]bus.Responder{
		"count." + pid: func(context.Context, *bus.Msg) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Appendf(nil, "%d %d", handled, missed), nil
		},
		"ask": func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			if string(m.Data) != "hang" {
				return []byte(pid), nil
			}
			err := b.Publish(ctx, "hanging", []byte(pid))
			<-ctx.Done()
			return nil, errors.Join(err, ctx.Err())
		},
	} {
		if err == nil {
			_, err = b.Respond(ctx, pattern, r)
		}
	}
	if err != nil {
		return err
	}
	_, err = b.Subscribe(ctx, "work", func(ctx context.Context, m *bus.Msg) error {
		time.Sleep(time.Millisecond) // so that much is queued when it has to leave
		return b.Publish(ctx, "done", []byte(pid+" "+string(m.Data)))
	}, bus.Group("workers"), bus.Concurrency(4))
	if err != nil {
		return err
	}
	if err := b.Publish(ctx, "ready", []byte(pid)); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	return b.Drain(ctx)
}

// office is a hub with workers in processes of their own, and a bus of the
// test's process.
type office struct {
	t   *testing.T
	hub *Hub
	bus *bus.Bus
}

func newOffice(t *testing.T, c HubConfig) *office {
	t.Helper()
	h := newHub(t, c)
	n, _ := join(t, h, Config{})
	b, err := bus.New(n.Bus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &office{t, h, b}
}

// colleague is a worker in a process of its own.
type colleague struct {
	*redistest.Process
	pid   string
	peer  *Client
	stdin io.Closer
}

func (o *office) start(task string) *colleague {
	o.t.Helper()
	here, there, err := Pair()
	if err != nil {
		o.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), busTask+"="+task)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{there}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		o.t.Fatal(err)
	}
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		o.t.Fatal(err)
	}
	_ = there.Close()
	o.t.Cleanup(func() { _ = p.Kill(); _ = stdin.Close() })
	return &colleague{p, strconv.Itoa(p.PID()), o.hub.Join(here, task), stdin}
}

// hire starts workers and returns when they serve.
func (o *office) hire(n int) (all []*colleague) {
	o.t.Helper()
	ready := o.listen("ready")
	for range n {
		all = append(all, o.start("serve"))
		o.next(ready)
	}
	return all
}

// leave has a worker drain and end.
func (o *office) leave(c *colleague) {
	o.t.Helper()
	_ = c.stdin.Close()
	if err := c.Wait(); err != nil {
		o.t.Errorf("worker %s: %v", c.pid, err)
	}
}

const busPatience = 20 * time.Second

func (o *office) await(what string, holds func() bool) {
	o.t.Helper()
	for end := time.Now().Add(busPatience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			o.t.Fatalf("not within %v: %s", busPatience, what)
		}
	}
}

func (o *office) listen(pattern string) <-chan *bus.Msg {
	o.t.Helper()
	got := make(chan *bus.Msg, 1<<16)
	_, err := o.bus.Subscribe(o.t.Context(), pattern, func(_ context.Context, m *bus.Msg) error { got <- m; return nil })
	if err != nil {
		o.t.Fatal(err)
	}
	return got
}

func (o *office) next(got <-chan *bus.Msg) *bus.Msg {
	o.t.Helper()
	select {
	case m := <-got:
		return m
	case <-time.After(busPatience):
		o.t.Fatalf("no message within %v", busPatience)
	}
	return nil
}

func (o *office) publish(subject, data string) {
	o.t.Helper()
	if err := o.bus.Publish(o.t.Context(), subject, []byte(data)); err != nil {
		o.t.Fatal(err)
	}
}

// ticks is how many a worker has handled, and how many it was told to have
// missed.
func (o *office) ticks(c *colleague) (handled, missed int) {
	o.t.Helper()
	m, err := o.bus.Request(o.t.Context(), "count."+c.pid, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(m.Data), &handled, &missed); err != nil {
		o.t.Fatal(err)
	}
	return handled, missed
}

// ledger is what the group has done, and by whom.
type ledger struct {
	mu   sync.Mutex // guards the fields below
	done map[int]string
	by   map[string]int // how many each has done
}

func (o *office) keepLedger() *ledger {
	o.t.Helper()
	l := &ledger{done: map[int]string{}, by: map[string]int{}}
	_, err := o.bus.Subscribe(o.t.Context(), "done", func(_ context.Context, m *bus.Msg) error {
		var pid string
		var n int
		if _, err := fmt.Sscan(string(m.Data), &pid, &n); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if before, twice := l.done[n]; twice {
			o.t.Errorf("%d was handled by %s and by %s", n, before, pid)
		}
		l.done[n] = pid
		l.by[pid]++
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return l
}

func (l *ledger) count() (n int, by map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done), maps.Clone(l.by)
}

// All workers are replaced one after the other while there is more to do than
// they can, and the group handles every message once.
func TestARollingRestartLosesNothing(t *testing.T) {
	o := newOffice(t, HubConfig{})
	l := o.keepLedger()
	workers := o.hire(3)
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	var published atomic.Int64
	publishing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			done, _ := l.count()
			if int(published.Load())-done > 500 {
				time.Sleep(time.Millisecond)
				continue
			}
			for range done + 800 - int(published.Load()) { // faster than the group, however slow the machine is
				o.publish("work", strconv.FormatInt(published.Add(1), 10))
			}
		}
	})
	rounds := max(suite.Scaled(2), 1)
	for range rounds {
		for i, old := range workers {
			o.await("the one to be replaced has a lot to do", func() bool {
				done, by := l.count()
				return by[old.pid] > 0 && int(published.Load())-done > 300
			})
			workers[i] = o.hire(1)[0]
			o.leave(old)
		}
	}
	o.await("each of the last ones has done something", func() bool {
		_, by := l.count()
		return !slices.ContainsFunc(workers, func(c *colleague) bool { return by[c.pid] == 0 })
	})
	close(stop)
	publishing.Wait()
	o.await("all that was published is handled", func() bool { n, _ := l.count(); return n == int(published.Load()) })
	t.Logf("%d messages", published.Load())
	if _, by := l.count(); len(by) != 3+3*rounds {
		t.Errorf("the shares are %v", by)
	}
}

// What a worker has been asked fails as soon as it is dead, and the next request
// goes to another one.
func TestRequestsToAKilledWorkerFailAtOnce(t *testing.T) {
	o := newOffice(t, HubConfig{})
	workers := o.hire(2)
	hanging := o.listen("hanging")
	failed := make(chan error, 64)
	for range cap(failed) {
		go func() {
			_, err := o.bus.Request(t.Context(), "ask", []byte("hang"), bus.Expires(time.Minute))
			failed <- err
		}()
	}
	had := map[string]int{}
	for range cap(failed) {
		had[string(o.next(hanging).Data)]++
	}
	for _, w := range workers {
		if had[w.pid] < cap(failed)/8 {
			t.Errorf("the shares are %v", had)
		}
		began := time.Now()
		if err := w.Kill(); err != nil {
			t.Fatal(err)
		}
		for range had[w.pid] {
			if err := <-failed; !errors.Is(err, bus.ErrDisconnected) {
				t.Errorf("a request to a worker that was killed: %v", err)
			}
		}
		if took := time.Since(began); took > busPatience { // they expire after a minute
			t.Errorf("they failed after %v", took)
		}
		m, err := o.bus.Request(t.Context(), "ask", nil)
		if w == workers[0] && (err != nil || string(m.Data) != workers[1].pid) || w == workers[1] && !errors.Is(err, bus.ErrNoResponders) {
			t.Errorf("the next request: %v, %v", m, err)
		}
	}
}

// A worker that stands still costs the hub no more than its backlog, and the
// others nothing; when it goes on it hears exactly what it has missed.
func TestAStoppedWorkerIsToldWhatItHasMissed(t *testing.T) {
	const backlog = 1 << 20
	o := newOffice(t, HubConfig{Backlog: backlog})
	workers := o.hire(2)
	stopped, well := workers[0], workers[1]
	if err := stopped.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	data := string(make([]byte, 1000))
	n := max(suite.Scaled(10_000), 5_000)
	for i := 1; i <= n; i++ {
		o.publish("tick", data)
		if i%200 == 0 {
			o.await("the other one has all", func() bool { handled, _ := o.ticks(well); return handled == i })
		}
		if waits := hub.Line(stopped.peer).Backlog(); waits > backlog+4096 {
			t.Fatalf("%d bytes wait for the one that is stopped", waits)
		}
	}
	if handled, missed := o.ticks(well); handled != n || missed != 0 {
		t.Errorf("the other one has handled %d of %d and missed %d", handled, n, missed)
	}
	t.Logf("%d ticks in %v", n, time.Since(began))
	if err := stopped.Continue(); err != nil {
		t.Fatal(err)
	}
	o.await("it takes messages again", func() bool { return !hub.IsFull(stopped.peer) })
	o.publish("tick", data) // carries what was missed
	o.await("the account is even", func() bool { handled, missed := o.ticks(stopped); return handled+missed == n+1 })
	if _, missed := o.ticks(stopped); missed == 0 {
		t.Error("it has missed nothing")
	}
}

// What was flushed is delivered, though its publisher is gone at once.
func TestFlushedMessagesSurviveTheirPublisher(t *testing.T) {
	o := newOffice(t, HubConfig{})
	got := o.listen("from.*")
	o.start("publish")
	for i := range 1000 {
		if m := o.next(got); string(m.Data) != strconv.Itoa(i) {
			t.Fatalf("message %d is %q", i, m.Data)
		}
	}
}

// The rules that need a hub which stands still, as only a process can.
func TestBusConformanceWithAHubThatStandsStill(t *testing.T) {
	socket := socketPath(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), busTask+"=hub", "MEGA_TEST_CLUSTER_SOCKET="+socket)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	hub, err := redistest.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = hub.Kill() })
	for _, err := os.Lstat(socket); err != nil; _, err = os.Lstat(socket) {
		time.Sleep(time.Millisecond)
	}
	err = bustest.Check(t.Context(), bustest.Harness{
		Open:       func() (driver.Driver, error) { return dialBus(Config{Socket: socket}) },
		Background: []string{"github.com/megaframework/mega/internal/testkit/redis.(*Process).run"},
		Faults:     bustest.Faults{Pause: hub.Pause, Continue: hub.Continue},
	}, "S6", "S22")
	if err != nil {
		t.Error(err)
	}
}
