package nats_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// clustered starts a server of a cluster whose first member accepts routes at an
// address.
func clustered(t *testing.T, first, listen string) *natstest.Server {
	t.Helper()
	return natstest.Start(t, natstest.Options{User: "u", Password: "p", Config: fmt.Sprintf(
		`cluster: {name: c, listen: %q, pool_size: -1, routes: ["nats-route://%s"]}`, listen, first)})
}

// named waits until a server names others.
func named(t *testing.T, server *natstest.Server, others ...*natstest.Server) {
	t.Helper()
	await(t, func() bool {
		conn, err := natsgo.Connect(server.URL(), natsgo.UserInfo("u", "p"))
		if err != nil {
			return false
		}
		defer conn.Close()
		return !slices.ContainsFunc(others, func(o *natstest.Server) bool { return !slices.Contains(conn.DiscoveredServers(), o.URL()) })
	})
}

// The servers that a server has named are used with the credentials in the URL, and
// as long as the bus lives, also those that were named before the last connection.
func TestServersThatAServerHasNamedAreUsed(t *testing.T) {
	t.Parallel()
	routes, err := redistest.FindAddr()
	if err != nil {
		t.Fatal(err)
	}
	a := clustered(t, routes, routes)
	b := clustered(t, routes, "127.0.0.1:-1")
	named(t, a, b)
	on := open(t, nats.Config{URL: strings.Replace(a.URL(), "://", "://u:p@", 1)})
	c := clustered(t, routes, "127.0.0.1:-1")
	named(t, b, c)
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
