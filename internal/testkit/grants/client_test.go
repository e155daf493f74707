//go:build linux || darwin

package grants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/wallclock"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
)

const (
	// ordersEnv makes the test binary a client: it has the orders.
	ordersEnv = "MEGA_TEST_GRANTS"
	inherited = 3 // the descriptor of a connection to a hub
	callers   = 4 // of a client
	maxCost   = 32
	// longest is more than any call takes: a busy machine, a wait of 50 ms, and the
	// second after which a backend counts as lost (W6, W11).
	longest = 15 * time.Second
	// ticketed is the index of a key for which all calls wait. Their requests have
	// a ticket: a backend that gets one of them twice grants it once (W9).
	ticketed = 2
)

// limits are the limits of the keys, by index. The last rate of each key never
// refuses: its window has all units of the run.
var limits = []limit.Limit{
	{Rates: []limit.Rate{{N: 100, Per: 10 * time.Millisecond}, everything}},
	{Rates: []limit.Rate{{N: 128, Per: 10 * time.Millisecond}, {N: 4000, Per: 500 * time.Millisecond}, everything}},
	{Rates: []limit.Rate{{N: 500, Per: 40 * time.Millisecond}, everything}},
}

var everything = limit.Rate{N: limit.MaxN, Per: 30 * 24 * time.Hour}

func keyOf(index int) string { return fmt.Sprint("partner:", index) }

// orders say where a client's limits are, and where it writes.
type orders struct {
	URL    string // of a Redis server
	Socket string // of a hub
	Pair   bool   // it has inherited a connection to a hub
	// Alone makes the client keep its limits in its own memory. It is the defect
	// that the judge has to notice.
	Alone   bool
	Journal string
	Seed    uint64
}

func TestMain(m *testing.M) {
	text, isClient := os.LookupEnv(ordersEnv)
	if !isClient {
		os.Exit(m.Run())
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.carryOut()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, o.Journal, err)
		os.Exit(1)
	}
}

// carryOut takes units until stdin ends.
func (o orders) carryOut() error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	d, err := o.open(ctx)
	for try := 0; err != nil && ctx.Err() == nil && try < 100; try++ { // the backend may be restarting
		d, err = o.open(ctx)
	}
	if ctx.Err() != nil {
		return nil // the run was over before the first answer
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(o.Journal, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c := &client{journal: &journal{file: f}, stopped: ctx.Done()}
	if c.limiter, err = limit.New(&witness{d, c}, limit.Config{}); err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		all.Go(func() { errs[i] = c.take(rand.New(rand.NewPCG(o.Seed, uint64(i)))) }) //nolint:gosec // not a secret
	}
	all.Wait()
	_ = c.limiter.Close(context.Background()) // a busy backend may have no time for it
	return errors.Join(errors.Join(errs...), f.Close())
}

func (o orders) open(ctx context.Context) (driver.Driver, error) {
	if o.Alone {
		return memory.NewLimit(), nil
	}
	if o.URL != "" {
		return redis.OpenLimit(ctx, redis.Config{URL: o.URL})
	}
	c := cluster.Config{Socket: o.Socket}
	if o.Pair {
		conn, err := cluster.Inherited(inherited)
		if err != nil {
			return nil, err
		}
		c.Conn = conn
	}
	n, err := cluster.Dial(ctx, c)
	if err != nil {
		return nil, err
	}
	return n.Limits(""), nil
}

// client is the work of a process.
type client struct {
	*journal
	limiter *limit.Limiter
	stopped <-chan struct{}
}

// take calls Wait and Allow for random costs and keys, and settles a part of the
// grants.
func (c *client) take(random *rand.Rand) error {
	for {
		select {
		case <-c.stopped:
			return nil
		default:
		}
		r := record{ID: c.ids.Add(1), Key: int64(random.IntN(len(limits))), Cost: int64(1 + random.IntN(maxCost))}
		r.Least, r.Most, r.From = r.Cost, r.Cost, time.Now().UnixNano()
		var err error
		if r.Key != ticketed && random.IntN(2) == 0 {
			err = c.allow(r)
		} else {
			err = c.wait(r, random)
		}
		if err != nil {
			return err
		}
		if took := time.Since(time.Unix(0, r.From)); took > longest {
			return fmt.Errorf("a call of %s took %v", keyOf(int(r.Key)), took)
		}
	}
}

// sighting is the time of a grant that Allow does not return.
type sighting struct{ at time.Time }

type sightingKey struct{}

func (c *client) allow(r record) error {
	var seen sighting
	ctx := context.WithValue(context.Background(), sightingKey{}, &seen)
	got, err := c.limiter.Allow(ctx, keyOf(int(r.Key)), limits[r.Key], limit.Cost(int(r.Cost)))
	r.To = time.Now().UnixNano()
	if err != nil {
		return c.unknown(r)
	}
	if !got.Allowed {
		return nil
	}
	r.At = seen.at.UnixMicro()
	return c.write(r)
}

func (c *client) wait(r record, random *rand.Rand) error {
	ctx, patience := context.Background(), time.Duration(1+random.IntN(50))*time.Millisecond
	options := []limit.Option{limit.Cost(int(r.Cost)), limit.MaxWait(patience)}
	if random.IntN(4) == 0 {
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx, options = bounded, options[:1]
	}
	p, err := c.limiter.Wait(ctx, keyOf(int(r.Key)), limits[r.Key], options...)
	r.To = time.Now().UnixNano()
	switch {
	case errors.Is(err, limit.ErrLimited):
		return nil
	case err != nil:
		return c.unknown(r)
	}
	r.At = p.At().UnixMicro()
	if random.IntN(3) > 0 {
		return c.write(r)
	}
	actual := int64(random.IntN(maxCost + 1)) // 0 is Cancel, more than the cost is a debt
	r.Least, r.Most = min(r.Cost, actual), max(r.Cost, actual)
	if err := c.write(r); err != nil { // before the Settle: others can have the units from then on
		return err
	}
	if actual == 0 {
		err = p.Cancel(context.Background())
	} else {
		err = p.Settle(context.Background(), int(actual))
	}
	if err != nil {
		return nil // the outcome is unknown, as the record says
	}
	r.Least, r.Most = actual, actual
	return c.write(r)
}

// unknown records a call whose outcome is unknown: it may have consumed its units.
func (c *client) unknown(r record) error {
	r.At, r.Least = 0, 0
	return c.write(r)
}

// witness is a driver that sees what the Limiter does not return.
type witness struct {
	driver.Driver
	client *client
}

func (w *witness) Take(ctx context.Context, r driver.Request) (driver.Answer, error) {
	a, err := w.Driver.Take(ctx, r)
	if seen, ok := ctx.Value(sightingKey{}).(*sighting); ok && a.Granted {
		seen.at = a.At
	}
	return a, err
}

// Withdraw records a request that may have been granted: it has not been
// withdrawn.
func (w *witness) Withdraw(ctx context.Context, r driver.Request) error {
	err := w.Driver.Withdraw(ctx, r)
	if err != nil {
		for i := range limits {
			if keyOf(i) == r.Key {
				err = errors.Join(err, w.client.unknown(record{ID: w.client.ids.Add(1), Key: int64(i), Cost: int64(r.Cost), Most: int64(r.Cost)}))
			}
		}
	}
	return err
}

// process is a running client.
type process struct {
	*redistest.Process
	stdin  io.Closer // its end tells the client to finish
	stderr *bytes.Buffer
}

// spawn starts a client that does not outlive the test.
func spawn(t *testing.T, bin string, o orders, shift time.Duration, files ...*os.File) process {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), ordersEnv+"="+string(text), wallclock.Env+"="+shift.String(), "GOMAXPROCS=1")
	stderr := new(bytes.Buffer)
	cmd.Stderr, cmd.ExtraFiles = stderr, files
	stdin, err := cmd.StdinPipe()
	must(t, err)
	p, err := redistest.StartProcess(cmd)
	must(t, err)
	t.Cleanup(func() { _ = p.Kill() })
	return process{p, stdin, stderr}
}

func journalOf(dir string, number int) string {
	return filepath.Join(dir, fmt.Sprintf("client%05d", number))
}
