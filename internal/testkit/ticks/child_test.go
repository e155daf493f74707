//go:build linux || darwin

package ticks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/wallclock"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// ordersEnv makes the test binary a child: it has the orders.
const ordersEnv = "MEGA_TEST_TICKS"

// orders say where a child's locks are.
type orders struct {
	URL    string // of a Redis server
	Socket string // of a hub
	// OwnClock makes the child count ticks on its own clock. It is the defect
	// that the tests have to notice.
	OwnClock bool
}

// run is a run of a child. The child prints it as a line of JSON.
type run struct {
	Tick  int64
	Start time.Time // when fn was called, on the machine's clock
	err   error     // the child has failed
}

func TestMain(m *testing.M) {
	text, isChild := os.LookupEnv(ordersEnv)
	if !isChild {
		os.Exit(m.Run())
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.carryOut()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(wallclock.Env), err)
		os.Exit(1)
	}
}

// carryOut runs Every until stdin ends.
func (o orders) carryOut() error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	d, err := o.open(ctx)
	for try := 0; err != nil && ctx.Err() == nil && try < 10; try++ { // a busy machine may delay an answer for a second
		d, err = o.open(ctx)
	}
	if ctx.Err() != nil {
		return nil // the test was over before the first answer
	}
	if err != nil {
		return err
	}
	if o.OwnClock {
		d = ownClock{d}
	}
	w := new(work)
	l, err := lock.New(d, lock.Config{Observer: w})
	if err != nil {
		return err
	}
	if err := l.Every(ctx, key, every, w.do); !errors.Is(err, context.Canceled) {
		return err
	}
	_ = l.Close(context.Background()) // a busy backend may have no time for it; no run is missed
	return nil
}

func (o orders) open(ctx context.Context) (driver.Driver, error) {
	if o.Socket == "" {
		return redis.OpenLock(ctx, redis.Config{URL: o.URL})
	}
	n, err := cluster.Dial(ctx, cluster.Config{Socket: o.Socket})
	if err != nil {
		return nil, err
	}
	return n.Locks(namespace), nil
}

// work is the work of a child and the observer of its Locker. Every calls both
// one after the other.
type work struct{ start time.Time }

func (w *work) do(context.Context) error {
	w.start = time.Now()
	return nil
}

func (w *work) Observe(e lock.Event) {
	if ran, ok := e.(lock.Ran); ok {
		line, _ := json.Marshal(run{Tick: ran.Tick, Start: w.start})
		_, _ = os.Stdout.Write(append(line, '\n'))
	}
}

// ownClock is a driver that counts ticks on the clock of its process.
type ownClock struct{ driver.Driver }

func (d ownClock) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	r, err := d.Driver.(driver.Runner).BeginRun(ctx, g, every, spend)
	shift, _ := time.ParseDuration(os.Getenv(wallclock.Env))
	r.Tick, r.Left = driver.TickAt(time.Now().Add(shift), every)
	return r, err
}

func (d ownClock) EndRun(context.Context, driver.Grant, driver.Run) error { return nil }

// spawn starts a child that does not outlive the test, and sends its runs. The
// child ends with the returned pipe, and closes over when it has ended.
func spawn(t *testing.T, bin string, o orders, shift time.Duration, runs chan<- run) (stdin io.Closer, over <-chan struct{}) {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), ordersEnv+"="+string(text), wallclock.Env+"="+shift.String(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, childOut, err := os.Pipe()
	must(t, err)
	cmd.Stdout = childOut
	p, err := redistest.StartProcess(cmd)
	must(t, err)
	must(t, childOut.Close()) // the child has its own
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = out.Close() }()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r run
			r.err = json.Unmarshal(lines.Bytes(), &r)
			runs <- r
		}
		if err := p.Wait(); err != nil {
			runs <- run{err: fmt.Errorf("the child with the clock at %v: %w", shift, err)}
		}
	}()
	return in, ended
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
