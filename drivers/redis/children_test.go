package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/testkit/boxes"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/internal/testkit/subprocess"
	"github.com/megaframework/mega/lock"
)

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

func (o orders) carryOut() error {
	l, err := newMember(openLock(context.Background(), redis.Config{URL: o.URL}))
	for errors.Is(err, lock.ErrUnavailable) { // until the parent kills it: the server got no processor for a second
		l, err = newMember(openLock(context.Background(), redis.Config{URL: o.URL}))
	}
	if err != nil {
		return err
	}
	subprocess.Tell(subprocess.Report{What: subprocess.Ready})
	switch o.Task {
	case "hold":
		err = o.hold(l)
	case "count":
		err = o.count(l)
	case "record":
		err = o.record(l)
	case "boxes":
		err = o.Boxes.Serve(l, os.Stdin, func(slot int) { subprocess.Tell(subprocess.Report{What: subprocess.Holding, Slot: slot}) })
	default:
		err = fmt.Errorf("unknown task %q", o.Task)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	closed := l.Close(ctx)
	if errors.Is(closed, context.DeadlineExceeded) || errors.Is(closed, lock.ErrUnavailable) { // the server stands still: its driver has a second
		closed = nil
	}
	return errors.Join(err, closed)
}

// hold takes the key, as soon as it can, and holds it until it is lost or
// stdin ends.
func (o orders) hold(l *lock.Locker) error {
	r, err := o.recorder()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // an incomplete history shows by itself
	c := history.NewClient(o.Name, l, r)
	lease, err := c.Acquire(context.Background(), o.Key, 1, lock.TTL(o.TTL), lock.Wait(lock.Forever))
	for errors.Is(err, lock.ErrUnavailable) { // as in carryOut
		lease, err = c.Acquire(context.Background(), o.Key, 1, lock.TTL(o.TTL), lock.Wait(lock.Forever))
	}
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
				with := func() error {
					return l.With(context.Background(), o.Key, func(context.Context) error { return increment(o.File) }, opts...)
				}
				err := with()
				for errors.Is(err, lock.ErrUnavailable) { // as in carryOut, and nothing was counted
					err = with()
				}
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
type child struct{ *subprocess.Process }

// spawn starts a child that does not outlive the test, and waits until it is
// connected.
func spawn(t *testing.T, o orders) *child {
	t.Helper()
	c := &child{subprocess.Start(t, o.Name, o)}
	c.expect(subprocess.Ready, 20*time.Second)
	return c
}

// expect waits for the child's next report, which has to be what is expected.
func (c *child) expect(what string, bound time.Duration) subprocess.Report {
	c.T.Helper()
	return c.Expect(what, generous(bound))
}

// letGo has a child release what it holds, and end.
func (c *child) letGo() {
	c.T.Helper()
	must(c.T, c.Stdin.Close())
	c.expect(subprocess.Released, 20*time.Second)
	c.expect(subprocess.Finished, 10*time.Second)
}
