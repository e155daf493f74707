//go:build linux || darwin

package grants

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/suite"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/internal/testkit/wallclock"
	"github.com/megaframework/mega/limit/driver"
)

const (
	processes = 4 // at once
	kills     = 8
)

// shifted are the packages between a Limiter and the connection to a backend.
var shifted = []string{
	"limit", "limit/driver", "drivers/redis", "internal/windows",
	"drivers/cluster", "drivers/cluster/internal/hub", "drivers/cluster/internal/protocol", "drivers/cluster/internal/rendezvous",
}

func TestNoIntervalExceedsARateWhateverHappens(t *testing.T) {
	bin := wallclock.Build(t, shifted...)
	n := records()
	for name, backend := range map[string]func(*testing.T) *storm{
		"redis": onRedis, "redis on slow links": onSlowLinks, "cluster socket": onSocket,
		"cluster socket with stops": onStops, "cluster socket with stalls": onStalls, "cluster supervisor": onSupervisor,
	} {
		t.Run(name, func(t *testing.T) {
			s := backend(t)
			s.bin, s.kills = bin, kills
			clients := s.run(t, n)
			if err := judge(clients, s.sameClock); err != nil {
				t.Error(err)
			}
			s.wantBalance(t, clients)
			calls, units := granted(clients)
			t.Logf("%d calls of %d clients were granted %d units, %d clients were killed", calls, len(clients), units, kills)
		})
	}
	t.Run("without a kill every unit is accounted for", func(t *testing.T) {
		s := onSupervisor(t)
		s.bin = bin
		clients := s.run(t, n/10)
		s.wantBalance(t, clients)
	})
	t.Run("the judge notices clients that count alone", func(t *testing.T) {
		s := &storm{bin: bin, orders: orders{Alone: true}}
		if err := judge(s.run(t, 2_000), false); err == nil {
			t.Error("the judge noticed nothing")
		}
	})
}

// records returns the number of records of a run. In make test, more than 3 000
// calls are granted 5 × 10⁴ units; in make soak, a million calls are granted 16
// million.
func records() int {
	const inTest = 4_200
	n := suite.Scaled(inTest)
	if n > inTest {
		return 15 * n
	}
	return max(n, 2_000)
}

// storm is a run of clients that are killed on a backend that is disturbed.
type storm struct {
	bin       string
	dir       string
	orders    orders
	kills     int
	sameClock bool                           // the times of all clients' grants are comparable
	moves     bool                           // a killed client may be the backend
	files     func(*testing.T) []*os.File    // that a client inherits, or nil
	repeats   bool                           // a call without a ticket may be executed several times
	place     func(o *orders, number int)    // changes the orders of a client, or nil
	end       func(t *testing.T, killed int) // ends the oldest client; nil kills it
	disturb   func(t *testing.T, killed int) // after each kill, or nil
	look      func(*testing.T) driver.Driver // opens the backend; nil if there is none

	looker  driver.Driver
	started int
	alive   []process // from the oldest
}

// run runs clients until they have written at least n records, and returns all
// records. The kills are spread evenly.
func (s *storm) run(t *testing.T, n int) [][]record {
	t.Helper()
	s.dir = t.TempDir()
	for range processes {
		s.alive = append(s.alive, s.start(t))
	}
	for killed := range s.kills {
		s.await(t, (killed+1)*n/(s.kills+1))
		if s.end != nil {
			s.end(t, killed)
		} else {
			must(t, s.alive[0].Kill())
		}
		if s.disturb != nil {
			s.disturb(t, killed)
		}
		s.alive = append(s.alive[1:], s.start(t))
	}
	s.await(t, n)
	if s.look != nil {
		s.looker = s.look(t) // before the clients leave: a hub may be among them
	}
	for _, p := range s.alive {
		must(t, p.stdin.Close())
	}
	for _, p := range s.alive {
		if err := p.Wait(); err != nil {
			t.Fatalf("a client has failed: %v\n%s", err, p.stderr)
		}
	}
	return readAll(t, s.dir)
}

// start starts the next client. The clocks of those that run at once are an hour
// apart.
func (s *storm) start(t *testing.T) process {
	t.Helper()
	o := s.orders
	o.Journal, o.Seed = journalOf(s.dir, s.started), uint64(s.started) //nolint:gosec // not negative
	shift := time.Duration(s.started%processes-processes/2) * time.Hour
	if s.place != nil {
		s.place(&o, s.started)
	}
	s.started++
	var files []*os.File
	if s.files != nil {
		files = s.files(t)
	}
	p := spawn(t, s.bin, o, shift, files...)
	for _, f := range files {
		must(t, f.Close()) // the client has its own
	}
	return p
}

// await waits until the clients have written n records.
func (s *storm) await(t *testing.T, n int) {
	t.Helper()
	last, since := 0, time.Now()
	for {
		now := written(t, s.dir)
		switch {
		case now >= n:
			return
		case now > last:
			last, since = now, time.Now()
		case time.Since(since) > 2*time.Minute:
			t.Fatalf("the clients have stopped after %d of %d records", now, n)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// wantBalance checks that the backend has the units that the clients have used:
// all of them without a kill.
func (s *storm) wantBalance(t *testing.T, clients [][]record) {
	t.Helper()
	for key := range limits {
		state, err := s.looker.Inspect(t.Context(), keyOf(key), []driver.Rate{everything})
		must(t, err)
		least, most := balance(clients, key, s.kills)
		if s.moves { // nobody else may know what it was granted last
			least -= s.kills * callers * maxCost
		}
		if s.moves && key != ticketed { // the others may ask twice
			most += s.kills * (processes - 1) * callers * maxCost
		}
		if s.repeats && key != ticketed {
			most += (copies - 1) * lost(clients, key)
		}
		if used := state.Rates[0].Used; used < least || used > most {
			t.Errorf("%s: the backend has %d units, the clients have used %d to %d", keyOf(key), used, least, most)
		}
	}
}

// onRedis returns a server that is killed and started again, and whose clock is
// set back.
func onRedis(t *testing.T) *storm {
	t.Helper()
	server := redistest.Start(t, redistest.Options{Persistence: redistest.AOF, Clock: redistest.CanStepClock()})
	s := &storm{orders: orders{URL: server.URL()}, sameClock: true}
	s.disturb = func(t *testing.T, killed int) {
		switch {
		case killed%3 == 1:
			must(t, server.Kill())
			must(t, server.Restart())
		case killed%3 == 2 && redistest.CanStepClock():
			must(t, server.StepClock(-time.Duration(killed)*time.Hour))
		}
	}
	s.look = s.open
	return s
}

// open opens the backend as a client does.
func (s *storm) open(t *testing.T) driver.Driver { t.Helper(); return closed(t, s.orders.open) }

// onSocket returns a socket whose hub is one of the clients. The oldest client is
// killed first, so that the hub is killed, too.
func onSocket(t *testing.T) *storm {
	t.Helper()
	s := &storm{orders: orders{Socket: filepath.Join(shortdir.New(t), "s")}, moves: true}
	s.look = s.open
	return s
}

// onSupervisor returns a hub in this process, to which the clients have inherited
// connections.
func onSupervisor(t *testing.T) *storm {
	t.Helper()
	hub := cluster.NewHub(cluster.HubConfig{})
	t.Cleanup(func() { _ = hub.Close(context.Background()) })
	join := func(t *testing.T) *os.File {
		here, there, err := cluster.Pair()
		must(t, err)
		hub.Join(here, "client")
		return there
	}
	return &storm{
		orders: orders{Pair: true},
		files:  func(t *testing.T) []*os.File { return []*os.File{join(t)} },
		look: func(t *testing.T) driver.Driver {
			there := join(t)
			conn, err := net.FileConn(there)
			must(t, errors.Join(err, there.Close()))
			return closed(t, func(ctx context.Context) (driver.Driver, error) {
				n, err := cluster.Dial(ctx, cluster.Config{Conn: conn})
				if err != nil {
					return nil, err
				}
				return n.Limits(""), nil
			})
		},
	}
}

// closed opens a driver that is closed with the test.
func closed(t *testing.T, open func(context.Context) (driver.Driver, error)) driver.Driver {
	t.Helper()
	d, err := open(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}
