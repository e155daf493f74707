package locks

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// RedisIdle holds a key here while 200 goroutines of another process wait for
// it, and counts the commands of their connections, as MONITOR shows them;
// commands inside a script are not counted. Each contestant has a separate
// process. Contestants with pushes are measured together; the polling one is
// measured alone, because it keeps the server busy.
func RedisIdle(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	server, err := l.Redis()
	if err != nil {
		return nil, err
	}
	commands, connections := measure.Samples{}, measure.Samples{}
	for i, group := range []struct {
		names  []string
		window time.Duration
	}{
		{[]string{peers.RueidisLock, measure.Mega}, 6 * time.Second}, // a few commands a second
		{[]string{peers.RedisLock}, time.Second},                     // tens of thousands
	} {
		crowds, err := gather(ctx, l, i*2, group.names)
		if err != nil {
			return nil, err
		}
		for range l.Reps(5) {
			if err := watch(ctx, server, crowds, l.Slice(group.window), commands, connections); err != nil {
				return nil, err
			}
		}
		for _, c := range crowds {
			if err := c.leave(); err != nil {
				return nil, err
			}
		}
	}
	return []measure.Claim{
		commands.Absolute("commands/s of 200 waiters", "/s", peers.RueidisLock, peers.RedisLock).AtMost(2),
		connections.Absolute("connections of 200 waiters", "", peers.RueidisLock, peers.RedisLock).AtMost(5),
	}, nil
}

// crowd is a process whose goroutines wait for a key that this process holds.
type crowd struct {
	name    string
	there   *lab.Worker
	release func() error
	addrs   map[string]bool // its connections, as the server sees them
	sent    atomic.Int64
}

func gather(ctx context.Context, l *lab.Lab, first int, names []string) (crowds []*crowd, err error) {
	staff, err := l.Staff(first + len(names))
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		c := &crowd{name: name, there: staff[first+i]}
		if err := c.settle(ctx, l); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		crowds = append(crowds, c)
	}
	return crowds, nil
}

// settle starts the waits of the crowd, and finds its connections: the new
// ones.
func (c *crowd) settle(ctx context.Context, l *lab.Lab) error {
	here, err := l.Locker(ctx, c.name)
	if err != nil {
		return err
	}
	k := lab.Key("idle", c.name)
	if c.release, err = here.Acquire(ctx, k); err != nil {
		return err
	}
	server, err := l.Redis()
	if err != nil {
		return err
	}
	before, err := addrs(server)
	if err != nil {
		return err
	}
	if err := c.there.Ask(lab.Order{Do: lab.DoWait, Contestant: c.name, Addr: server.Addr(), Key: k, Goroutines: 200}); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // until all are queued and their connections stand
	after, err := addrs(server)
	if err != nil {
		return err
	}
	c.addrs = map[string]bool{}
	for a := range after {
		if !before[a] {
			c.addrs[a] = true
		}
	}
	return nil
}

func (c *crowd) leave() error {
	if err := c.there.Ask(lab.Order{Do: lab.DoLeave}); err != nil {
		return err
	}
	return c.release()
}

func addrs(s *redistest.Server) (map[string]bool, error) {
	clients, err := s.Clients()
	if err != nil {
		return nil, err
	}
	addrs := map[string]bool{}
	for _, c := range clients {
		addrs[c["addr"]] = true
	}
	return addrs, nil
}

// watch counts what each crowd sends during a window.
func watch(ctx context.Context, s *redistest.Server, crowds []*crowd, window time.Duration, commands, connections measure.Samples) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(window))
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		for _, c := range crowds {
			if c.addrs[sender(lines.Text())] {
				c.sent.Add(1)
			}
		}
	}
	for _, c := range crowds {
		commands.Add(c.name, float64(c.sent.Swap(0))/window.Seconds())
		connections.Add(c.name, float64(len(c.addrs)))
	}
	return nil
}

// sender returns the sender of a command, as in `+1700000000.1 [0
// 127.0.0.1:5000] "PING"`; it is "lua" for a command inside a script.
func sender(line string) string {
	_, rest, _ := strings.Cut(line, "[")
	who, _, _ := strings.Cut(rest, "]")
	_, who, _ = strings.Cut(who, " ")
	return who
}
