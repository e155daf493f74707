package redis_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/testkit/boxes"
	"github.com/megaframework/mega/internal/testkit/history"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// childEnv makes this test binary a child of itself: it holds the orders.
const childEnv = "MEGA_TEST_CHILD"

// orders tell a child what to do.
type orders struct {
	Task    string        `json:"task"`
	URL     string        `json:"url"`
	Name    string        `json:"name"`
	Key     string        `json:"key"`
	TTL     time.Duration `json:"ttl"`
	History string        `json:"history,omitempty"` // the recording; none if empty
	File    string        `json:"file,omitempty"`
	Workers int           `json:"workers,omitempty"`
	Rounds  int           `json:"rounds,omitempty"`
	FIFO    bool          `json:"fifo,omitempty"`
	Boxes   *boxes.Orders `json:"boxes,omitempty"` // of the task "boxes"
}

// report is what a child tells its parent, as a line of JSON.
type report struct {
	What  string `json:"what"`
	Fence uint64 `json:"fence,omitempty"`
	Slot  int    `json:"slot,omitempty"`
	Text  string `json:"text,omitempty"`
}

// What a child reports.
const (
	ready    = "ready" // it is connected
	holding  = "holding"
	lost     = "lost"
	released = "released"
	broken   = "broken" // a promise was broken
	failed   = "failed"
	finished = "finished"
)

// runChild is the main function of a child. In the test binary itself it
// returns at once.
func runChild() {
	text, isChild := os.LookupEnv(childEnv)
	if !isChild {
		return
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.carryOut()
	}
	if err != nil {
		send(report{What: failed, Text: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

func send(r report) {
	text, _ := json.Marshal(r)
	_, _ = os.Stdout.Write(append(text, '\n'))
}

func (o orders) carryOut() error {
	l, err := newMember(openLock(context.Background(), redis.Config{URL: o.URL}))
	if err != nil {
		return err
	}
	send(report{What: ready})
	switch o.Task {
	case "hold":
		err = o.hold(l)
	case "count":
		err = o.count(l)
	case "record":
		err = o.record(l)
	case "boxes":
		err = o.Boxes.Serve(l, os.Stdin, func(slot int) { send(report{What: holding, Slot: slot}) })
	default:
		err = fmt.Errorf("unknown task %q", o.Task)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	closed := l.Close(ctx)
	if errors.Is(closed, context.DeadlineExceeded) { // the server stands still: its driver has a second
		closed = nil
	}
	if err = errors.Join(err, closed); err == nil {
		send(report{What: finished})
	}
	return err
}

// hold takes the key, as soon as it can, and holds it until it is lost or
// stdin ends.
func (o orders) hold(l *lock.Locker) error {
	r, err := o.recorder()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // an incomplete history shows by itself
	lease, err := history.NewClient(o.Name, l, r).Acquire(context.Background(), o.Key, 1, lock.TTL(o.TTL), lock.Wait(lock.Forever))
	if err != nil {
		return err
	}
	send(report{What: holding, Fence: lease.Fence()})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	believe(lease, done)
	if err := lease.Release(); err == nil {
		send(report{What: released, Fence: lease.Fence()})
	}
	return nil
}

// believe reports the end of the lease, until done is closed.
func believe(lease *history.Lease, done <-chan struct{}) {
	switch ended, late := lease.Watch(done); {
	case ended != nil:
		send(report{What: lost, Fence: lease.Fence(), Text: ended.Error()})
	case late > 0:
		send(report{What: broken, Text: fmt.Sprintf("the context was alive %v after the deadline", late)})
	}
}

func (o orders) recorder() (*history.Recorder, error) {
	path := o.History
	if path == "" {
		path = os.DevNull
	}
	return history.NewRecorder(path, o.Name)
}

// count increments the number in a file, with many workers, under the lock
// and by nothing else.
func (o orders) count(l *lock.Locker) error {
	opts := append(o.options(), lock.TTL(o.TTL), lock.Wait(lock.Forever))
	errs := make([]error, o.Workers)
	var workers []func()
	for i := range o.Workers {
		workers = append(workers, func() {
			for range o.Rounds {
				err := l.With(context.Background(), o.Key, func(context.Context) error { return increment(o.File) }, opts...)
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	together(workers...)
	return errors.Join(errs...)
}

func (o orders) options() (opts []lock.Option) {
	if o.FIFO {
		opts = append(opts, lock.FIFO())
	}
	return opts
}

// increment reads, waits a little and writes: two at once lose one.
func increment(path string) error {
	n, err := counted(path)
	if err != nil {
		return err
	}
	time.Sleep(100 * time.Microsecond)
	return os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o600)
}

func counted(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// record uses the key in every way, with several clients, and records it.
func (o orders) record(l *lock.Locker) error {
	r, err := o.recorder()
	if err != nil {
		return err
	}
	var clients []func()
	for i := range o.Workers {
		c := history.NewClient(fmt.Sprint(o.Name, ".", i), l, r)
		clients = append(clients, func() { c.Use(context.Background(), o.Key, o.TTL, o.Rounds, o.options()...) })
	}
	together(clients...)
	return r.Close()
}

// child is a process that carries out orders.
type child struct {
	*redistest.Process
	t       *testing.T
	name    string
	reports chan report
	stdin   *os.File
}

// spawn starts a child that does not outlive the test, and waits until it is
// connected.
func spawn(t *testing.T, o orders) *child {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	in, stdin, err := os.Pipe()
	must(t, err)
	stdout, out, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	p, err := redistest.StartProcess(cmd)
	_, _ = in.Close(), out.Close() // the child has them
	must(t, err)
	c := &child{Process: p, t: t, name: o.Name, reports: make(chan report, 1000), stdin: stdin}
	go c.listen(stdout)
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = p.Kill()
		for range c.reports { // until listen has ended
		}
	})
	c.expect(ready, 20*time.Second)
	return c
}

func (c *child) listen(stdout *os.File) {
	defer close(c.reports)
	defer func() { _ = stdout.Close() }()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			c.reports <- r
		}
	}
}

// expect waits for the child's next report, which has to be what is expected.
func (c *child) expect(what string, bound time.Duration) report {
	c.t.Helper()
	select {
	case r, ok := <-c.reports:
		if !ok || r.What != what {
			c.t.Fatalf("child %s reports %+v, want %q", c.name, r, what)
		}
		return r
	case <-time.After(generous(bound)):
		c.t.Fatalf("child %s did not report %q within %v", c.name, what, bound)
	}
	panic("unreachable")
}

// silent checks that the child has reported nothing so far.
func (c *child) silent() {
	c.t.Helper()
	select {
	case r := <-c.reports:
		c.t.Errorf("child %s reports %+v, want nothing yet", c.name, r)
	default:
	}
}

// letGo has a child release what it holds, and end.
func (c *child) letGo() {
	c.t.Helper()
	must(c.t, c.stdin.Close())
	c.expect(released, 5*time.Second)
	c.expect(finished, 10*time.Second)
}
