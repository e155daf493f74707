package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/testkit/boxes"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/internal/testkit/subprocess"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// orders tell a child what to do. Without a socket it inherits its connection.
type orders struct {
	Task    string
	Name    string
	Socket  string
	Key     string
	TTL     time.Duration
	History string
	Workers int
	Rounds  int
	Boxes   *boxes.Orders // of the task "boxes"
}

// inherited is the descriptor of a child's connection.
const inherited = 3

func (o orders) carryOut() error {
	if o.Task == "hub" {
		return o.serve()
	}
	l, err := o.join()
	if err != nil {
		return err
	}
	subprocess.Tell(subprocess.Report{What: subprocess.Ready})
	switch o.Task {
	case "hold":
		err = o.hold(l)
	case "fork":
		err = o.fork(l)
	case "record":
		err = o.record(l)
	case "boxes":
		err = o.Boxes.Serve(l, os.Stdin, func(slot int) { subprocess.Tell(subprocess.Report{What: subprocess.Holding, Slot: slot}) })
	default:
		err = fmt.Errorf("unknown task %q", o.Task)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, l.Close(ctx))
}

// serve is a hub whose peers come over a socket as if they had inherited their
// connections.
func (o orders) serve() error {
	l, err := net.Listen("unix", o.Socket)
	if err != nil {
		return err
	}
	h := NewHub(HubConfig{})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.Join(conn, "test")
		}
	}()
	subprocess.Tell(subprocess.Report{What: subprocess.Ready})
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = l.Close() // the process ends
	return h.Close(context.Background())
}

func (o orders) join() (*lock.Locker, error) {
	c := Config{Socket: o.Socket}
	if o.Socket == "" {
		conn, err := Inherited(inherited)
		if err != nil {
			return nil, err
		}
		c.Conn = conn
	}
	return openMember(context.Background(), c)
}

// openMember opens a Locker on a node of its own, which ends with it.
func openMember(ctx context.Context, c Config) (*lock.Locker, error) {
	n, err := Dial(ctx, c)
	if err != nil {
		return nil, err
	}
	return lock.New(whole{n.Lock(), n}, lock.Config{})
}

// whole is a node's lock driver that ends with the node.
type whole struct {
	*Lock
	node *Node
}

func (w whole) Close(ctx context.Context) error {
	return errors.Join(w.Lock.Close(ctx), w.node.Close(ctx))
}

func (o orders) recorder() (*history.Recorder, error) {
	path := o.History
	if path == "" {
		path = os.DevNull
	}
	return history.NewRecorder(path, o.Name)
}

// hold takes the key, as soon as it can, and holds it until it is lost or stdin
// ends.
func (o orders) hold(l *lock.Locker) error {
	r, err := o.recorder()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // an incomplete history shows by itself
	c := history.NewClient(o.Name, l, r)
	lease, err := answered(func() (*history.Lease, error) {
		return c.Acquire(context.Background(), o.Key, 1, lock.TTL(o.TTL), lock.Wait(lock.Forever))
	})
	if err != nil {
		return err
	}
	subprocess.Tell(subprocess.Report{What: subprocess.Holding, Fence: lease.Fence()})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	believe(lease, done)
	if err := lease.Release(); err == nil {
		subprocess.Tell(subprocess.Report{What: subprocess.Released, Fence: lease.Fence()})
	}
	return nil
}

// believe reports the end of the lease, until done is closed.
func believe(lease *history.Lease, done <-chan struct{}) {
	switch late, ended := lease.Watch(done); {
	case ended != nil:
		subprocess.Tell(subprocess.Report{What: subprocess.Lost, Fence: lease.Fence(), Text: ended.Error()})
	case late > 0:
		subprocess.Tell(subprocess.Report{What: subprocess.Broken, Text: fmt.Sprintf("the context was alive %v after the deadline", late)})
	}
}

// fork takes the key, a slot of a pool and a place in a queue, starts a process
// that goes on living, and waits to be killed.
func (o orders) fork(l *lock.Locker) error {
	ctx := context.Background()
	take := func(key string, opts ...lock.Option) (*lock.Lease, error) {
		return answered(func() (*lock.Lease, error) { return l.Acquire(ctx, o.Key+key, opts...) })
	}
	lease, err := take("", lock.TTL(o.TTL))
	if err != nil {
		return err
	}
	if _, err := take("-pool", lock.TTL(o.TTL), lock.Slots(2)); err != nil {
		return err
	}
	go func() { _, _ = take("-queue", lock.Wait(lock.Forever)) }()
	cmd := exec.Command("sleep", "60")
	ofItsOwn(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	subprocess.Tell(subprocess.Report{What: subprocess.Forked, Fence: lease.Fence(), PID: cmd.Process.Pid})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// record uses the key in every way, with several clients, and records it.
func (o orders) record(l *lock.Locker) error {
	r, err := o.recorder()
	if err != nil {
		return err
	}
	done := make(chan struct{})
	for i := range o.Workers {
		c := history.NewClient(fmt.Sprint(o.Name, ".", i), l, r)
		go func() {
			c.Use(context.Background(), o.Key, o.TTL, o.Rounds)
			done <- struct{}{}
		}()
	}
	for range o.Workers {
		<-done
	}
	return r.Close()
}

// child is a process that carries out orders.
type child struct{ *subprocess.Process }

// spawn starts a child that does not outlive the test, with a connection to h
// unless h is nil, and waits until it is ready.
func spawn(t *testing.T, h *Hub, o orders) *child {
	t.Helper()
	var files []*os.File
	if h != nil {
		here, there, err := Pair()
		must(t, err)
		defer there.Close()
		files = append(files, there)
		h.Join(here, o.Name)
	}
	c := &child{subprocess.Start(t, o.Name, o, files...)}
	c.expect(subprocess.Ready)
	return c
}

// bound is how long a test waits for what should happen at once.
const bound = 20 * time.Second

// expect waits for the child's next report, which has to be what is expected.
func (c *child) expect(what string) subprocess.Report {
	c.T.Helper()
	return c.Expect(what, bound)
}

// hubChild starts a hub in a process of its own, and returns what connects to it
// as its workers are connected.
func hubChild(t *testing.T) (*child, func() (net.Conn, error)) {
	t.Helper()
	path := filepath.Join(shortdir.New(t), "s")
	c := spawn(t, nil, orders{Task: "hub", Name: "hub", Socket: path})
	return c, func() (net.Conn, error) { return net.Dial("unix", path) }
}

// answered returns the result of call, which is not about an outage. If there was no
// answer in all of the time that a call has, the hub got no processor, and answered
// repeats the call for a while. It returns an error that comes sooner.
func answered[T any](call func() (T, error)) (result T, err error) {
	for end := time.Now().Add(bound); ; {
		start := time.Now()
		if result, err = call(); !unanswered(err, start) || time.Now().After(end) {
			return result, err
		}
	}
}

// unanswered reports whether err is the end of a call, begun at start, for which the
// hub got no processor.
func unanswered(err error, start time.Time) bool {
	return errors.Is(err, lock.ErrUnavailable) && time.Since(start) >= driver.CallTimeout*9/10
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what another process does, and cannot be waited for
// otherwise.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", bound, what)
		}
	}
}
