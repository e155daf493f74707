package redistest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Cluster is a Redis Cluster of masters that share the slots evenly.
type Cluster struct {
	servers  []*Server
	busPorts []int
	replicas map[*Server]*Server // and their masters
}

// NewCluster starts a Cluster with a number of masters, at least three, and returns
// when it serves every slot. The caller closes it.
func NewCluster(masters int, o Options) (*Cluster, error) {
	c := &Cluster{replicas: map[*Server]*Server{}}
	if err := c.start(masters, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// StartCluster starts a Cluster that ends with the test.
func StartCluster(tb testing.TB, masters int, o Options) *Cluster {
	tb.Helper()
	c, err := NewCluster(masters, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (c *Cluster) start(masters int, o Options) error {
	for range masters {
		server, bus, err := newNode(o)
		if err != nil {
			return err
		}
		c.servers, c.busPorts = append(c.servers, server), append(c.busPorts, bus)
	}
	if err := c.join(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return until(ctx, "wait for the cluster", c.complete)
}

// newNode starts a server that is in no Cluster yet. It returns also its port for
// other nodes.
func newNode(o Options) (*Server, int, error) {
	bus, err := freePort()
	if err != nil {
		return nil, 0, err
	}
	o.Config = append(slices.Clone(o.Config), "cluster-enabled yes", "cluster-node-timeout 2000", fmt.Sprintf("cluster-port %d", bus))
	server, err := New(o)
	return server, bus, err
}

// join assigns each master its slots and connects it with the first master.
func (c *Cluster) join() error {
	share := slots/len(c.servers) + 1
	host, port, _ := net.SplitHostPort(c.servers[0].Addr())
	for i, s := range c.servers {
		first, last := i*share, min((i+1)*share, slots)-1
		errs := []error{
			s.do("CLUSTER", "SET-CONFIG-EPOCH", i+1),
			s.do("CLUSTER", "ADDSLOTSRANGE", first, last),
		}
		if i > 0 {
			errs = append(errs, s.do("CLUSTER", "MEET", host, port, c.busPorts[0]))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// complete returns nil when every master knows all slots as served.
func (c *Cluster) complete() error {
	for _, s := range c.servers {
		text, err := s.text("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		for _, want := range []string{
			"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d\r", slots), fmt.Sprintf("cluster_size:%d\r", len(c.servers)),
		} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("%s does not say %q", s.Addr(), want)
			}
		}
	}
	return nil
}

// URL returns the address of the Cluster for a client: redis-cluster://h1,h2,h3.
func (c *Cluster) URL() string {
	user := ""
	if p := c.servers[0].options.Password; p != "" {
		user = ":" + p + "@"
	}
	return "redis-cluster://" + user + strings.Join(c.Addrs(), ",")
}

// Addrs returns the addresses of the masters.
func (c *Cluster) Addrs() []string { return addrs(c.servers) }

// Servers returns the masters.
func (c *Cluster) Servers() []*Server { return slices.Clone(c.servers) }

// Close kills all servers and removes their folders.
func (c *Cluster) Close() error {
	return closeAll(append(slices.Collect(maps.Keys(c.replicas)), c.servers...))
}

// AddReplica starts a replica of a master, which never takes its place by itself. It
// returns when the replica has the data of the master.
func (c *Cluster) AddReplica(master *Server) (*Server, error) {
	o := master.options
	o.Config = []string{"cluster-replica-no-failover yes", "masteruser " + replicaUser, "masterauth any"}
	replica, _, err := newNode(o)
	if err != nil {
		return nil, err
	}
	c.replicas[replica] = master
	id, err := master.text("CLUSTER", "MYID")
	errs := []error{err, master.do("ACL", "SETUSER", replicaUser, "on", "nopass", "+psync", "+replconf", "+ping")}
	for i, s := range c.servers {
		host, port, _ := net.SplitHostPort(s.Addr())
		errs = append(errs, replica.do("CLUSTER", "MEET", host, port, c.busPorts[i]))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err = until(ctx, "wait for the replica to know its master", func() error { return replica.do("CLUSTER", "REPLICATE", id) })
	if err != nil {
		return nil, err
	}
	return replica, until(ctx, "wait for the replica", func() error { return errors.Join(replica.follows(0), c.known(replica, "slave")) })
}

// Sever stops the replication from a master to its replicas: writes that the master
// acknowledges from now on are lost with it.
func (c *Cluster) Sever(master *Server) error {
	if err := master.do("ACL", "SETUSER", replicaUser, "off"); err != nil {
		return err
	}
	_, err := master.kill("replica")
	return err
}

// TakeOver makes a replica the master of its slots, without the votes of
// the others, and returns when the other masters know.
func (c *Cluster) TakeOver(replica *Server) error {
	if err := replica.do("CLUSTER", "FAILOVER", "TAKEOVER"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return until(ctx, "wait for the new master", func() error { return c.known(replica, "master") })
}

// known returns nil when the masters know the role of a replica. Its own master may
// have ended.
func (c *Cluster) known(replica *Server, role string) error {
	id, err := replica.text("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	for _, s := range c.servers {
		if s == c.replicas[replica] {
			continue
		}
		nodes, err := s.text("CLUSTER", "NODES")
		if err != nil {
			return err
		}
		if _, after, _ := strings.Cut(nodes, id+" "); !strings.HasPrefix(after, replica.Addr()+"@") || !strings.Contains(strings.Fields(after)[1], role) {
			return fmt.Errorf("%s does not know %s as %s", s.Addr(), replica.Addr(), role)
		}
	}
	return nil
}

// Move is the move of a hash slot from one master to another.
type Move struct {
	Slot             int
	Source, Target   *Server
	sourceID, destID string
}

// OpenSlot begins to move the hash slot of key to another master, as redis-cli
// --cluster reshard does. The slot stays open until Finish.
func (c *Cluster) OpenSlot(key string) (*Move, error) {
	v, err := c.servers[0].Do("CLUSTER", "KEYSLOT", key)
	if err != nil {
		return nil, err
	}
	slot, _ := v.(int64)
	at := int(slot) / (slots/len(c.servers) + 1) // as join shares them
	m := &Move{Slot: int(slot), Source: c.servers[at], Target: c.servers[(at+1)%len(c.servers)]}
	if m.sourceID, err = m.Source.text("CLUSTER", "MYID"); err != nil {
		return nil, err
	}
	if m.destID, err = m.Target.text("CLUSTER", "MYID"); err != nil {
		return nil, err
	}
	return m, errors.Join(
		m.Target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", m.sourceID),
		m.Source.do("CLUSTER", "SETSLOT", slot, "MIGRATING", m.destID))
}

// MoveKeys moves the keys that the source still has, except some.
func (m *Move) MoveKeys(except ...string) error {
	host, port, _ := net.SplitHostPort(m.Target.Addr())
	for {
		v, err := m.Source.Do("CLUSTER", "GETKEYSINSLOT", m.Slot, 100)
		keys, _ := v.([]any)
		keys = slices.DeleteFunc(keys, func(key any) bool { return slices.Contains(except, fmt.Sprintf("%s", key)) })
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := m.Source.do(append([]any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}, keys...)...); err != nil {
			return err
		}
	}
}

// Finish gives the slot to the target.
func (m *Move) Finish() error {
	return errors.Join(m.MoveKeys(),
		m.Target.do("CLUSTER", "SETSLOT", m.Slot, "NODE", m.destID),
		m.Source.do("CLUSTER", "SETSLOT", m.Slot, "NODE", m.destID))
}
