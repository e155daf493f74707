package nats_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/testkit/certificate"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// cluster starts servers of one cluster.
type cluster struct {
	t       *testing.T
	options natstest.Options
	routes  string // the address for routes of the first server
}

func (c *cluster) start() *natstest.Server {
	c.t.Helper()
	listen := "127.0.0.1:-1"
	if c.routes == "" {
		addr, err := redistest.FindAddr()
		if err != nil {
			c.t.Fatal(err)
		}
		c.routes, listen = addr, addr
	}
	o := c.options
	o.Config += fmt.Sprintf("\n"+`cluster: {name: c, listen: %q, pool_size: -1, routes: ["nats-route://%s"]}`, listen, c.routes)
	return natstest.Start(c.t, o)
}

// named waits until the server at url names these others.
func named(t *testing.T, url string, others []*natstest.Server, o ...natsgo.Option) {
	t.Helper()
	var want []string
	for _, other := range others {
		want = append(want, host(other.URL()))
	}
	slices.Sort(want)
	await(t, func() bool {
		conn, err := natsgo.Connect(url, o...)
		if err != nil {
			return false
		}
		defer conn.Close()
		var got []string
		for _, server := range conn.DiscoveredServers() {
			if h := host(server); !strings.HasSuffix(url, h[strings.Index(h, ":"):]) { // not itself, by its address
				got = append(got, h)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// host returns the address in the URL of a server.
func host(url string) string {
	_, addr, _ := strings.Cut(url, "://")
	return addr[strings.Index(addr, "@")+1:]
}

// The servers that a server has named are used with the credentials in the URL, and
// as long as the bus lives, also those that were named before the last connection.
func TestServersThatAServerHasNamedAreUsed(t *testing.T) {
	t.Parallel()
	servers := &cluster{t: t, options: natstest.Options{User: "u", Password: "p"}}
	url := func(s *natstest.Server) string { return strings.Replace(s.URL(), "://", "://u:p@", 1) }
	a, b := servers.start(), servers.start()
	named(t, url(a), []*natstest.Server{b})
	on := open(t, nats.Config{URL: url(a)})
	c := servers.start()
	named(t, url(b), []*natstest.Server{a, c})
	a.Stop()
	connected(t, on, 1)
	current, other := b, c
	if b.Clients() == 0 {
		current, other = c, b
	}
	other.Stop()
	if err := current.Drop(); err != nil {
		t.Fatal(err)
	}
	connected(t, on, 2)
}

// Servers name each other by IP addresses, which are seldom in their certificates. TLS
// then verifies the name in the URL, as the client's own reconnect does it, also after
// a connection to such an address.
func TestAServerThatIsNamedByAnAddressHasTheNameInTheURL(t *testing.T) {
	t.Parallel()
	cert, key := certificate.Certificate{Host: "localhost"}.Write(t)
	servers := &cluster{t: t, options: natstest.Options{Cert: cert, Key: key}}
	url := func(s *natstest.Server) string { return strings.Replace(s.URL(), "127.0.0.1", "localhost", 1) }
	a, b := servers.start(), servers.start()
	named(t, url(a), []*natstest.Server{b}, natsgo.RootCAs(cert))
	on := open(t, nats.Config{URL: url(a), TLS: nats.TLS{CA: cert}})
	a.Stop()
	connected(t, on, 1)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	c := servers.start()
	named(t, url(b), []*natstest.Server{a, c}, natsgo.RootCAs(cert))
	a.Stop()
	b.Stop()
	connected(t, on, 2)
}

// The addresses of servers change in some environments with each of their starts. An
// earlier address may lead nowhere, or to a server of another cluster, and delays no
// connection while a server of the cluster is there.
func TestServersThatHaveLeftTheClusterAreTriedLast(t *testing.T) {
	t.Parallel()
	servers := &cluster{t: t}
	a, b := servers.start(), servers.start()
	named(t, a.URL(), []*natstest.Server{b})
	on := open(t, nats.Config{URL: a.URL()})
	b.Stop()
	c := servers.start()
	named(t, a.URL(), []*natstest.Server{c})
	var strays atomic.Int64
	occupy(t, b, func(net.Conn) { strays.Add(1) }) // it does not answer
	const cuts = 10
	for i := range uint64(cuts) {
		await(t, func() bool { return a.Clients()+c.Clients() == 1 })
		current := a
		if c.Clients() == 1 {
			current = c
		}
		if err := current.Drop(); err != nil {
			t.Fatal(err)
		}
		connected(t, on, i+1)
	}
	a.Stop()
	await(t, func() bool { return c.Clients() == 1 })
	if n := strays.Load(); n > 0 {
		t.Errorf("%d attempts to connect to the address of a server that has left", n)
	}
}

// An attempt to connect tries one of the servers that have left the cluster, and the next
// attempt another one. Their addresses may lead nowhere: to try all of them before the
// configured ones again would make a restart of all servers an outage of minutes.
func TestAnAttemptToConnectTriesOneServerThatHasLeft(t *testing.T) {
	t.Parallel()
	servers := &cluster{t: t}
	a := servers.start()
	gone := []*natstest.Server{servers.start(), servers.start(), servers.start()}
	named(t, a.URL(), gone)
	on := open(t, nats.Hasty(nats.Config{URL: a.URL()}, time.Second, 100*time.Millisecond))
	var strays [3]atomic.Int64
	for i, server := range gone {
		server.Stop()
		occupy(t, server, func(net.Conn) { strays[i].Add(1) }) // it does not answer
	}
	named(t, a.URL(), nil)
	if err := a.Drop(); err != nil {
		t.Fatal(err)
	}
	connected(t, on, 1)
	before := strays[0].Load() + strays[1].Load() + strays[2].Load()
	a.Stop()
	var attempts atomic.Int64
	occupy(t, a, func(c net.Conn) { attempts.Add(1); _ = c.Close() })
	await(t, func() bool { return attempts.Load() >= 6 })
	all := -before
	for i := range strays {
		n := strays[i].Load()
		if all += n; n == 0 {
			t.Errorf("server %d is not tried", i)
		}
	}
	if n := attempts.Load(); all >= 2*n {
		t.Errorf("%d attempts have tried %d servers that have left", n, all)
	}
}

// occupy listens at the address of a server that is stopped.
func occupy(t *testing.T, server *natstest.Server, accepted func(net.Conn)) {
	t.Helper()
	listener, err := net.Listen("tcp", host(server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted(conn)
		}
	}()
}
