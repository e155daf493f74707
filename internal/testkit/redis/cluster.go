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
type Cluster struct {
	options  Options
	servers  []*Server // the masters at the start
	replicas []*Server
}

// NewCluster starts a Cluster with a number of masters, at least three, and returns
// when it serves every slot. The caller closes it.
func NewCluster(masters int, o Options) (*Cluster, error) {
	c := &Cluster{options: o}
	if err := c.start(masters); err != nil {
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

func (c *Cluster) start(masters int) error {
	var busPorts []int
	for range masters {
		server, bus, err := c.launch()
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

// launch starts a server that may join the Cluster by its bus port.
func (c *Cluster) launch() (s *Server, bus int, err error) {
	if bus, err = freePort(); err != nil {
		return nil, 0, err
	}
	o := c.options
	// A replica stands for election in Promote only, and there however old its
	// data are.
	o.Config = append(slices.Clone(o.Config), "cluster-enabled yes", "cluster-node-timeout 2000",
		"cluster-replica-no-failover yes", "cluster-replica-validity-factor 0", fmt.Sprintf("cluster-port %d", bus))
	s, err = New(o)
	return s, bus, err
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
		if err := c.knownTo(s); err != nil {
			return err
		}
	}
	return nil
}

// knownTo returns nil when the server knows all masters, and all slots as served.
func (c *Cluster) knownTo(s *Server) error {
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
func (c *Cluster) Close() error { return closeAll(append(slices.Clone(c.servers), c.replicas...)) }

// AddReplica adds a replica of a master, and returns when it has the present data,
// and it and the masters know each other.
func (c *Cluster) AddReplica(master *Server) (*Server, error) {
	replica, bus, err := c.launch()
	if err != nil {
		return nil, err
	}
	c.replicas = append(c.replicas, replica)
	id, err := master.text("CLUSTER", "MYID")
	if err != nil {
		return nil, err
	}
	own, err := replica.text("CLUSTER", "MYID")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	host, port, _ := net.SplitHostPort(replica.Addr())
	if err := master.do("CLUSTER", "MEET", host, port, bus); err != nil {
		return nil, err
	}
	if err := until(ctx, "wait for the replica to know its master", func() error { return replica.do("CLUSTER", "REPLICATE", id) }); err != nil {
		return nil, err
	}
	return replica, until(ctx, "wait for the replica", func() error {
		if err := errors.Join(replica.follows(0), c.knownTo(replica)); err != nil {
			return err
		}
		for _, s := range c.servers {
			nodes, err := s.text("CLUSTER", "NODES")
			known := func(line string) bool {
				return strings.HasPrefix(line, own) && strings.Contains(line, " "+id+" ")
			}
			if err != nil || !slices.ContainsFunc(strings.Split(nodes, "\n"), known) {
				return errors.Join(err, fmt.Errorf("master %s does not know the replica", s.Addr()))
			}
		}
		return nil
	})
}

// Sever stops the replication to a replica. Its master goes on acknowledging
// writes, and Promote loses them.
func (c *Cluster) Sever(master, replica *Server) error {
	for _, setting := range []string{"masteruser", "masterauth"} {
		if err := replica.do("CONFIG", "SET", setting, "nobody"); err != nil {
			return err
		}
	}
	_, err := master.kill("replica")
	return err
}

// Promote waits until the other masters have elected a replica of a master that is
// stopped or dead. (CLUSTER FAILOVER TAKEOVER needs no election, but the others
// may refuse it: its epoch can be one that they know already.)
func (c *Cluster) Promote(ctx context.Context, replica *Server) error {
	if err := replica.do("CONFIG", "SET", "cluster-replica-no-failover", "no"); err != nil {
		return err
	}
	err := until(ctx, "wait for failover", func() error {
		info, err := replica.Info("replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("%s is still a %s", replica.Addr(), info["role"])
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, logs(append(slices.Clone(c.servers), replica)))
	}
	return err
}

// Move is the move of a hash slot from one master to another.
type Move struct {
	Slot             int
	Source, Target   *Server
	sourceID, destID string
	cluster          *Cluster
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
	return c.open(int(slot), c.servers[at], c.servers[(at+1)%len(c.servers)])
}

// Back begins to move the slot back to its source, after Finish. Before, it waits until
// the masters agree: the source raises its epoch only above those that it knows, and a
// message of the target with a higher one would take the slot from it.
func (m *Move) Back() (*Move, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := until(ctx, "wait for the masters to agree", m.cluster.agree); err != nil {
		return nil, err
	}
	return m.cluster.open(m.Slot, m.Target, m.Source)
}

// agree returns nil when all masters know the same slots and epoch of each, and no two
// have the same epoch.
func (c *Cluster) agree() error {
	var views []string
	for _, s := range c.servers {
		text, err := s.text("CLUSTER", "NODES")
		if err != nil {
			return err
		}
		view, err := mastersOf(text)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Addr(), err)
		}
		views = append(views, view)
	}
	if slices.ContainsFunc(views, func(view string) bool { return view != views[0] }) {
		return fmt.Errorf("the masters have different views:\n%s", strings.Join(views, "\n\n"))
	}
	return nil
}

// mastersOf returns the id, epoch and slots of each master in an answer to CLUSTER NODES.
func mastersOf(text string) (string, error) {
	var all []string
	byEpoch := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.Contains(f[2], "master") {
			continue
		}
		id, epoch := f[0], f[6]
		if other := byEpoch[epoch]; other != "" {
			return "", fmt.Errorf("%s and %s have the epoch %s", other, id, epoch)
		}
		byEpoch[epoch] = id
		served := slices.DeleteFunc(f[8:], func(slot string) bool { return strings.HasPrefix(slot, "[") }) // open
		all = append(all, strings.Join(append([]string{id, epoch}, served...), " "))
	}
	slices.Sort(all)
	return strings.Join(all, "\n"), nil
}

func (c *Cluster) open(slot int, source, target *Server) (m *Move, err error) {
	m = &Move{Slot: slot, Source: source, Target: target, cluster: c}
	if m.sourceID, err = source.text("CLUSTER", "MYID"); err != nil {
		return nil, err
	}
	if m.destID, err = target.text("CLUSTER", "MYID"); err != nil {
		return nil, err
	}
	return m, errors.Join(
		target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", m.sourceID),
		source.do("CLUSTER", "SETSLOT", slot, "MIGRATING", m.destID))
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

// Finish gives the slot to the target. Every master learns of it at once, so that a new
// client gets the new owner from whichever server it asks.
func (m *Move) Finish() error {
	err := m.MoveKeys()
	others := slices.DeleteFunc(slices.Clone(m.cluster.servers), func(s *Server) bool { return s == m.Target })
	for _, s := range append([]*Server{m.Target}, others...) { // the target first: it raises its epoch
		err = errors.Join(err, s.do("CLUSTER", "SETSLOT", m.Slot, "NODE", m.destID))
	}
	return err
}
