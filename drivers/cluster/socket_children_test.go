//go:build linux || darwin

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/testkit/history"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// This test binary as an unrelated process at a socket.

// socketChild makes this test binary such a process: it holds its orders.
const socketChild = "MEGA_TEST_SOCKET_CHILD"

// socketOrders tell a process at a socket what to do.
type socketOrders struct {
	Socket  string
	Name    string
	History string        // the recording of its locks
	Reigns  string        // where it says when it was the hub
	TTL     time.Duration // of its leases
	Work    bool          // it uses the locks by itself all the time
}

// runSocketChild is the main function of such a process. In the test binary
// itself it returns at once.
func runSocketChild() {
	text, isChild := os.LookupEnv(socketChild)
	if !isChild {
		return
	}
	var o socketOrders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.carryOut()
	}
	if err != nil {
		announce("failed", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// announce writes a line for the test.
func announce(what ...any) { fmt.Fprintln(os.Stdout, what...) }

func (o socketOrders) carryOut() error {
	reigns, err := os.OpenFile(o.Reigns, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	r, err := history.NewRecorder(o.History, o.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	n, err := Dial(ctx, Config{Socket: o.Socket, Log: slog.New(&herald{name: o.Name, out: reigns})})
	if err != nil {
		return err
	}
	l, err := lock.New(n.Lock(), lock.Config{TTL: o.TTL})
	if err != nil {
		return err
	}
	b, err := bus.New(n.Bus(), bus.Config{})
	if err != nil {
		return err
	}
	announce("ready")
	p := &user{orders: o, locker: l, bus: b, recorder: r, leases: make(map[string]*history.Lease)}
	if o.Work {
		p.work()
	}
	p.obey()
	p.mu.Lock()
	for _, lease := range p.leases {
		_ = lease.Release()
	}
	p.mu.Unlock()
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := errors.Join(l.Close(ctx), b.Close(), n.Close(ctx), r.Close()); err != nil {
		return err
	}
	announce("closed")
	return nil
}

// The log messages at the beginning and at the end of a hub.
const (
	hubBegins = "cluster: this process is the hub of the socket"
	hubEnds   = "cluster: this process is no longer the hub of the socket"
)

// herald is a log that says when this process was the hub.
type herald struct {
	name string
	out  io.Writer
}

// reign is a line of what heralds say: from when, or until when, a process was
// the hub.
type reign struct {
	Name   string
	At     int64
	Begins bool
}

func (*herald) Enabled(context.Context, slog.Level) bool { return true }
func (h *herald) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *herald) WithGroup(string) slog.Handler          { return h }

func (h *herald) Handle(_ context.Context, r slog.Record) error {
	if r.Message != hubBegins && r.Message != hubEnds {
		if r.Level >= slog.LevelWarn {
			fmt.Fprintln(os.Stderr, h.name, r.Message, r.Level)
			r.Attrs(func(a slog.Attr) bool { fmt.Fprintln(os.Stderr, "  ", a); return true })
		}
		return nil
	}
	text, err := json.Marshal(reign{h.name, history.Now(), r.Message == hubBegins})
	if err == nil {
		_, err = h.out.Write(append(text, '\n'))
	}
	if r.Message == hubBegins {
		announce("hub")
	}
	return err
}

// user is a process that uses locks.
type user struct {
	orders   socketOrders
	locker   *lock.Locker
	bus      *bus.Bus
	recorder *history.Recorder

	resting chan struct{} // ends churn

	counting                *bus.Sub
	counted, disorder, last atomic.Int64 // of counting

	mu     sync.Mutex
	leases map[string]*history.Lease
}

// count counts what flood publishes.
func (p *user) count(subject string) {
	var err error
	p.counting, err = p.bus.Subscribe(context.Background(), subject, func(_ context.Context, m *bus.Msg) error {
		n, err := strconv.ParseInt(string(m.Data[:10]), 10, 64)
		if n <= p.last.Swap(n) {
			p.disorder.Add(1)
		}
		p.counted.Add(1)
		return err
	}, bus.Buffer(1<<20, 1<<30))
	announce("counts", subject, err)
}

// flood publishes so many messages of 128 bytes, and says so.
func (p *user) flood(what string) {
	subject, number, _ := strings.Cut(what, " ")
	n, err := strconv.Atoi(number)
	go func() {
		data := make([]byte, 128)
		for i := 1; i <= n && err == nil; i++ {
			copy(data, fmt.Sprintf("%010d", i))
			err = p.bus.Publish(context.Background(), subject, data)
		}
		announce("flooded", n, err)
	}()
}

// churn takes and gives the key until rest, and reports how each Release ends.
func (p *user) churn(key string) {
	p.resting = make(chan struct{})
	rest := p.resting
	go func() {
		defer announce("churned end")
		for {
			select {
			case <-rest:
				return
			default:
			}
			start := time.Now()
			lease, err := p.locker.Acquire(context.Background(), key)
			if err == nil {
				start = time.Now()
				err = lease.Release()
			}
			if !unanswered(err, start) {
				announce("churned", err)
			}
		}
	}()
}

// obey does what stdin says, until it ends: "take <key>" reports "took <key>
// <fence>" as soon as it has it and "lost <key> <why>" when it has not any more,
// "give <key>" reports "gave <key>". "try <key>" reports how a call that does not
// wait has ended, "look <key>" how many wait, "hear <pattern>" what is said from
// then on; "say <subject>" says the process's name. "churn <key>" takes and gives
// the key until "rest", and reports each Release as "churned <err>". "flood <subject> <n>" publishes
// numbers, "count <subject>" counts them, "counted" reports how many came, how
// many of them out of order, and how many gaps there were; "flush" reports how many may be lost, and how a
// Flush ends.
func (p *user) obey() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		what, key, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "take":
			go p.take(key)
		case "try":
			p.try(key)
		case "give":
			p.mu.Lock()
			lease := p.leases[key]
			delete(p.leases, key) // it is given once
			p.mu.Unlock()
			start := time.Now()
			if err := lease.Release(); err != nil && !unanswered(err, start) { // else it is repeated in the background (L5)
				announce("failed", err)
			}
			announce("gave", key)
		case "churn":
			p.churn(key)
		case "rest":
			close(p.resting)
		case "count":
			p.count(key)
		case "counted":
			announce("counted", p.counted.Load(), p.disorder.Load(), p.counting.Stats().Gaps)
		case "flood":
			p.flood(key)
		case "flush":
			announce("flushed", p.bus.Stats().Lost, p.bus.Flush(context.Background()))
		case "start":
			if err := exec.Command("sleep", "60").Start(); err != nil {
				announce("failed", err)
			}
			announce("started")
		case "hear":
			p.hear(key)
		case "say":
			if err := p.bus.Publish(context.Background(), key, []byte(p.orders.Name)); err != nil {
				announce("failed", err)
			}
		case "look":
			state, err := answered(func() (lock.State, error) { return p.locker.Inspect(context.Background(), key) })
			if err != nil {
				announce("failed", err)
			}
			announce("sees", key, len(state.Waiters))
		}
	}
}

// hear reports messages, with how many were missed before.
func (p *user) hear(pattern string) {
	_, err := p.bus.Subscribe(context.Background(), pattern, func(_ context.Context, m *bus.Msg) error {
		announce("heard", m.Subject, "from", string(m.Data), "missed", m.Missed)
		return nil
	})
	if err != nil {
		announce("failed", err)
	}
	announce("hears", pattern)
}

func (p *user) take(key string) {
	c := history.NewClient(p.orders.Name+"."+key, p.locker, p.recorder)
	lease, err := answered(func() (*history.Lease, error) {
		return c.Acquire(context.Background(), key, 1, lock.Wait(lock.Forever), lock.FIFO())
	})
	if err != nil {
		announce("failed", err)
		return
	}
	p.mu.Lock()
	p.leases[key] = lease
	p.mu.Unlock()
	announce("took", key, lease.Fence())
	<-lease.Context().Done()
	if err := context.Cause(lease.Context()); errors.Is(err, lock.ErrLost) {
		announce("lost", key, err)
	}
}

// try reports what a call for a key that does not wait ends with.
func (p *user) try(key string) {
	lease, err := p.locker.TryAcquire(context.Background(), key)
	if err == nil {
		err = lease.Release()
	}
	announce("tried", key, err)
}

// work uses a few keys, pools, slots with states and queues all the time.
func (p *user) work() {
	use := func(key string, slots int, opts ...lock.Option) {
		c := history.NewClient(p.orders.Name+"."+key, p.locker, p.recorder)
		for {
			lease, err := c.Acquire(context.Background(), key, slots, append(opts, lock.Wait(lock.Forever))...)
			if errors.Is(err, lock.ErrClosed) {
				return
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, p.orders.Name, key, err)
				continue
			}
			time.Sleep(time.Millisecond)
			_ = lease.Release()
			time.Sleep(time.Millisecond)
		}
	}
	go use("plain", 1)
	go use("queue", 1, lock.FIFO())
	go use("pool", 2)
	go func() {
		c := history.NewClient(p.orders.Name+".boxes", p.locker, p.recorder)
		for !errors.Is(c.UseSlot(context.Background(), "boxes", 2, p.orders.TTL), lock.ErrClosed) {
			time.Sleep(time.Millisecond)
		}
	}()
}

// proc is such a process, seen from the test.
type proc struct {
	*redistest.Process
	t     *testing.T
	name  string
	stdin *os.File
	lines chan string
}

// court is a socket with the processes that meet there, and what they record.
type court struct {
	t        *testing.T
	orders   socketOrders // for all
	recorder *history.Recorder
	last     int
}

func newCourt(t *testing.T, ttl time.Duration) *court {
	t.Helper()
	socket := socketPath(t)
	dir := t.TempDir()
	c := &court{t: t, orders: socketOrders{Socket: socket, History: dir + "/history", Reigns: dir + "/reigns", TTL: ttl}}
	r, err := history.NewRecorder(c.orders.History, "test")
	if err != nil {
		t.Fatal(err)
	}
	c.recorder = r
	return c
}

// come starts a process at the socket, and returns when it is there.
func (c *court) come(work bool) *proc {
	c.t.Helper()
	o := c.orders
	c.last++
	o.Name, o.Work = "p"+strconv.Itoa(c.last), work
	p := spawnAt(c.t, o)
	p.says("ready")
	return p
}

func spawnAt(t *testing.T, o socketOrders) *proc {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), socketChild+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	started, err := redistest.StartProcess(cmd)
	_, _ = in.Close(), out.Close() // the child has them
	if err != nil {
		t.Fatal(err)
	}
	p := &proc{Process: started, t: t, name: o.Name, stdin: stdin, lines: make(chan string, 10_000)}
	go p.listen(stdout)
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = started.Kill()
		for range p.lines { // until listen has ended
		}
	})
	return p
}

func (p *proc) listen(stdout *os.File) {
	defer close(p.lines)
	defer func() { _ = stdout.Close() }()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() != "hub" {
			p.lines <- lines.Text()
		}
	}
}

// says waits for the next line, which has to begin like that.
func (p *proc) says(begin string) string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok || !strings.HasPrefix(line, begin) {
			p.t.Fatalf("%s says %q, want %q", p.name, line, begin)
		}
		return line
	case <-time.After(20 * time.Second):
		p.t.Fatalf("%s does not say %q", p.name, begin)
	}
	panic("unreachable")
}

// tries returns the result of "try key" to a hub that can answer. On a busy machine it
// may get no processor for a second.
func (p *proc) tries(key string) string {
	p.t.Helper()
	for end := time.Now().Add(bound); ; {
		p.tell("try " + key)
		line := p.says("tried " + key)
		if !strings.Contains(line, "has not answered in time") || time.Now().After(end) {
			return line
		}
	}
}

// silent checks that the process has said nothing.
func (p *proc) silent() {
	p.t.Helper()
	select {
	case line := <-p.lines:
		p.t.Errorf("%s says %q, want nothing yet", p.name, line)
	default:
	}
}

func (p *proc) tell(line string) {
	p.t.Helper()
	if _, err := p.stdin.WriteString(line + "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// leave has the process close its node and end.
func (p *proc) leave() {
	p.t.Helper()
	if err := p.stdin.Close(); err != nil {
		p.t.Fatal(err)
	}
	for p.says("") != "closed" {
	}
	<-p.Done()
}

// kill kills processes at once, and records it. What they believed in the
// instant in which the signals left counts no more.
func (c *court) kill(ps ...*proc) (at int64) {
	c.t.Helper()
	for _, p := range ps {
		c.recorder.Gone(p.name)
	}
	at = history.Now()
	for _, p := range ps {
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	}
	for _, p := range ps {
		<-p.Done()
	}
	return at
}
