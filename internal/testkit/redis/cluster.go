package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Cluster is a Redis Cluster of masters that share the slots evenly.
type Cluster struct{ servers []*Server }

// NewCluster starts a Cluster with a number of masters, at least three, and returns
// when it serves every slot. The caller closes it.
func NewCluster(masters int, o Options) (*Cluster, error) {
	c := &Cluster{}
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
	var busPorts []int
	for range masters {
		bus, err := freePort()
		if err != nil {
			return err
		}
		each := o
		each.Config = append(slices.Clone(o.Config), "cluster-enabled yes", "cluster-node-timeout 2000",
			fmt.Sprintf("cluster-port %d", bus))
		server, err := New(each)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, server)
		busPorts = append(busPorts, bus)
	}
	if err := c.join(busPorts); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return until(ctx, "wait for the cluster", c.complete)
}

// join assigns each master its slots and connects it with the first master.
func (c *Cluster) join(busPorts []int) error {
	share := slots/len(c.servers) + 1
	host, port, _ := net.SplitHostPort(c.servers[0].Addr())
	for i, s := range c.servers {
		first, last := i*share, min((i+1)*share, slots)-1
		errs := []error{
			s.do("CLUSTER", "SET-CONFIG-EPOCH", i+1),
			s.do("CLUSTER", "ADDSLOTSRANGE", first, last),
		}
		if i > 0 {
			errs = append(errs, s.do("CLUSTER", "MEET", host, port, busPorts[0]))
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
func (c *Cluster) Close() error { return closeAll(c.servers) }

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
