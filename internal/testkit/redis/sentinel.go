package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// masterName is the name of the master at the sentinels.
const masterName = "mega"

// replicaUser is the account of replicas at their master. Without it, a master
// loses the writes that it acknowledges.
const replicaUser = "replica"

// Sentinels is a master with replicas, and three sentinels that observe it.
type Sentinels struct {
	servers   []*Server // the first one began as the master
	sentinels []*Server
}

// NewSentinels starts a master with the given number of replicas and three
// sentinels, and returns when a failover would work. The caller closes it.
func NewSentinels(replicas int, o Options) (*Sentinels, error) {
	s := &Sentinels{}
	if err := s.start(replicas, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// StartSentinels starts a set that ends with the test.
func StartSentinels(tb testing.TB, replicas int, o Options) *Sentinels {
	tb.Helper()
	s, err := NewSentinels(replicas, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *Sentinels) start(replicas int, o Options) error {
	o.Users = append(slices.Clone(o.Users), replicaUser+" on nopass +psync +replconf +ping")
	o.Config = append(slices.Clone(o.Config), "masteruser "+replicaUser, "masterauth any")
	for i := range replicas + 1 {
		each := o
		if i > 0 {
			host, port, _ := net.SplitHostPort(s.servers[0].Addr())
			each.Config = append(slices.Clone(o.Config), "replicaof "+host+" "+port)
		}
		server, err := New(each)
		if err != nil {
			return err
		}
		s.servers = append(s.servers, server)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.replicated(ctx, s.servers[0]); err != nil {
		return err
	}
	return s.watch(ctx, replicas)
}

// Replicated waits until every running replica has the present data of the master.
func (s *Sentinels) Replicated(ctx context.Context) error {
	master, err := s.Master()
	if err != nil {
		return err
	}
	return s.replicated(ctx, master)
}

func (s *Sentinels) replicated(ctx context.Context, master *Server) error {
	info, err := master.Info("replication")
	if err != nil {
		return err
	}
	want, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	return until(ctx, "wait for replicas", func() error {
		for _, replica := range s.servers {
			if replica == master || replica.PID() == 0 {
				continue
			}
			if err := replica.follows(want); err != nil {
				return err
			}
		}
		return nil
	})
}

// follows returns nil when the replica has reached the offset.
func (s *Server) follows(want int64) error {
	info, err := s.Info("replication")
	if err != nil {
		return err
	}
	got, _ := strconv.ParseInt(info["slave_repl_offset"], 10, 64)
	if info["master_link_status"] != "up" || got < want {
		return fmt.Errorf("replica %s is %s at %d, want %d", s.Addr(), info["master_link_status"], got, want)
	}
	return nil
}

// watch starts the sentinels and waits until each knows all others.
func (s *Sentinels) watch(ctx context.Context, replicas int) error {
	host, port, _ := net.SplitHostPort(s.servers[0].Addr())
	for i := range 3 {
		// One notices before the others and asks them for their votes: when
		// several stand for election at once the votes may be split, and the
		// next election is seconds away.
		config := []string{
			"sentinel monitor " + masterName + " " + host + " " + port + " 1",
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", masterName, 500+1000*i),
			"sentinel failover-timeout " + masterName + " 2000",
		}
		if p := s.servers[0].options.Password; p != "" {
			config = append(config, "sentinel auth-pass "+masterName+" "+p)
		}
		sentinel, err := launch(Options{Config: config}, "--sentinel")
		if err != nil {
			return err
		}
		s.sentinels = append(s.sentinels, sentinel)
		// The periods are made for networks; these are for one machine. Five
		// ping periods have to be longer than the second after which a sentinel
		// asks a replica again, or it takes none for good enough.
		if err := sentinel.do("SENTINEL", "DEBUG", "info-period", 300, "ping-period", 300,
			"publish-period", 200, "ask-period", 100, "default-down-after", 500); err != nil {
			return err
		}
	}
	return until(ctx, "wait for sentinels", func() error { return s.complete(replicas) })
}

// complete returns nil when each sentinel knows the others and each replica.
func (s *Sentinels) complete(replicas int) error {
	for _, sentinel := range s.sentinels {
		m, err := sentinel.fields("SENTINEL", "MASTER", masterName)
		if err != nil {
			return err
		}
		if m["num-slaves"] != strconv.Itoa(replicas) || m["num-other-sentinels"] != "2" || m["flags"] != "master" {
			return fmt.Errorf("sentinel %s knows %s replicas and %s sentinels of a %s",
				sentinel.Addr(), m["num-slaves"], m["num-other-sentinels"], m["flags"])
		}
	}
	return nil
}

// URL returns the address of the set for a client: redis-sentinel://h1,h2,h3/master.
func (s *Sentinels) URL() string {
	user := ""
	if p := s.servers[0].options.Password; p != "" {
		user = ":" + p + "@"
	}
	return "redis-sentinel://" + user + strings.Join(s.Addrs(), ",") + "/" + masterName
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinels) Addrs() []string { return addrs(s.sentinels) }

// MasterName returns the name of the master at the sentinels.
func (s *Sentinels) MasterName() string { return masterName }

// Servers returns the servers of the set. The first one began as the master.
func (s *Sentinels) Servers() []*Server { return slices.Clone(s.servers) }

// Master asks the sentinels which server is the master.
func (s *Sentinels) Master() (*Server, error) {
	var errs []error
	for _, sentinel := range s.sentinels {
		addr, err := sentinel.masterAddr()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, server := range s.servers {
			if server.Addr() == addr {
				return server, nil
			}
		}
	}
	return nil, errors.Join(append(errs, errors.New("redistest: no sentinel knows the master"))...)
}

// Sever stops the replication from the master. The master goes on acknowledging
// writes, and the next Failover loses them.
func (s *Sentinels) Sever() error {
	master, err := s.Master()
	if err != nil {
		return err
	}
	if err := master.do("ACL", "SETUSER", replicaUser, "off"); err != nil {
		return err
	}
	_, err = master.kill("replica")
	return err
}

// Failover kills the master and waits until every sentinel names another one
// that takes writes. The old master stays dead; Restart brings it back as a
// replica.
func (s *Sentinels) Failover(ctx context.Context) error {
	old, err := s.Master()
	if err != nil {
		return err
	}
	if err := old.Kill(); err != nil {
		return err
	}
	if err := until(ctx, "wait for failover", func() error { return s.movedFrom(old) }); err != nil {
		return fmt.Errorf("%w\n%s", err, logs(s.sentinels))
	}
	return nil
}

// Forget removes the master from the sentinels, as an operator does before a change.
func (s *Sentinels) Forget() error {
	var errs []error
	for _, sentinel := range s.sentinels {
		errs = append(errs, sentinel.do("SENTINEL", "REMOVE", masterName))
	}
	return errors.Join(errs...)
}

// Recall adds a master again after Forget.
func (s *Sentinels) Recall(master *Server) error {
	host, port, _ := net.SplitHostPort(master.Addr())
	var errs []error
	for _, sentinel := range s.sentinels {
		errs = append(errs, sentinel.do("SENTINEL", "MONITOR", masterName, host, port, 1))
	}
	return errors.Join(errs...)
}

// Require sets a password of the sentinels, which clients then need. The set has no
// use for other methods afterwards, because they do not send it.
func (s *Sentinels) Require(password string) error {
	var errs []error
	for _, sentinel := range s.sentinels {
		errs = append(errs, sentinel.do("ACL", "SETUSER", "default", "resetpass", ">"+password))
	}
	return errors.Join(errs...)
}

// logs returns the ends of the logs of servers.
func logs(servers []*Server) string {
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "server %s:\n%s\n", s.Addr(), s.LogTail())
	}
	return b.String()
}

func (s *Sentinels) movedFrom(old *Server) error {
	for _, sentinel := range s.sentinels {
		addr, err := sentinel.masterAddr()
		if err != nil {
			return err
		}
		if addr == old.Addr() {
			return fmt.Errorf("sentinel %s still names %s", sentinel.Addr(), addr)
		}
	}
	master, err := s.Master()
	if err != nil {
		return err
	}
	info, err := master.Info("replication")
	if err == nil && info["role"] != "master" {
		err = fmt.Errorf("%s is still a %s", master.Addr(), info["role"])
	}
	return err
}

// Close kills all servers and removes their folders.
func (s *Sentinels) Close() error { return closeAll(append(slices.Clone(s.sentinels), s.servers...)) }

// masterAddr asks a sentinel for the master's host and port.
func (s *Server) masterAddr() (string, error) {
	v, err := s.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
	if err != nil {
		return "", err
	}
	if pair, ok := v.([]any); ok && len(pair) == 2 {
		return fmt.Sprintf("%v:%v", pair[0], pair[1]), nil
	}
	return "", fmt.Errorf("redistest: sentinel %s answered %v", s.Addr(), v)
}

// fields decodes an answer that lists names and values in turn.
func (s *Server) fields(args ...any) (map[string]string, error) {
	v, err := s.Do(args...)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m, nil
}

// until repeats check until it returns nil or ctx ends, for states of processes
// that cause no event.
func until(ctx context.Context, doing string, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redistest: %s: %w: %w", doing, ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func addrs(servers []*Server) []string {
	var list []string
	for _, s := range servers {
		list = append(list, s.Addr())
	}
	return list
}

func closeAll(servers []*Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
