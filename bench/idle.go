package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// redisIdle holds a key here while 200 goroutines of another process wait for
// it, and counts the commands of their connections, as MONITOR shows them;
// commands inside a script are not counted. Each contestant has a separate
// process. Contestants with pushes are measured together; the polling one is
// measured alone, because it keeps the server busy.
func redisIdle(ctx context.Context, l *lab) ([]claim, error) {
	commands, connections := samples{}, samples{}
	for i, group := range []struct {
		names  []string
		window time.Duration
	}{
		{[]string{rueidisLock, mega}, 6 * time.Second}, // a few commands a second
		{[]string{redisLock}, time.Second},             // tens of thousands
	} {
		crowds, err := gather(ctx, l, i*2, group.names)
		if err != nil {
			return nil, err
		}
		for range l.reps(5) {
			if err := watch(ctx, l.server, crowds, l.slice(group.window), commands, connections); err != nil {
				return nil, err
			}
		}
		for _, c := range crowds {
			if err := c.leave(); err != nil {
				return nil, err
			}
		}
	}
	return []claim{
		commands.absolute("commands/s of 200 waiters", "/s", rueidisLock, redisLock).atMost(2),
		connections.absolute("connections of 200 waiters", "", rueidisLock, redisLock).atMost(5),
	}, nil
}

// crowd is a process whose goroutines wait for a key that this process holds.
type crowd struct {
	name    string
	there   *worker
	release func() error
	addrs   map[string]bool // its connections, as the server sees them
	sent    atomic.Int64
}

func gather(ctx context.Context, l *lab, first int, names []string) (crowds []*crowd, err error) {
	staff, err := l.staff(first + len(names))
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
func (c *crowd) settle(ctx context.Context, l *lab) error {
	here, err := l.locker(ctx, c.name)
	if err != nil {
		return err
	}
	k := key("idle", c.name)
	if c.release, err = here.acquire(ctx, k); err != nil {
		return err
	}
	before, err := addrs(l.server)
	if err != nil {
		return err
	}
	if err := c.there.ask(order{Do: doWait, Contestant: c.name, Addr: l.server.Addr(), Key: k, Goroutines: 200}); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // until all are queued and their connections stand
	after, err := addrs(l.server)
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
	if err := c.there.ask(order{Do: doLeave}); err != nil {
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
func watch(ctx context.Context, s *redistest.Server, crowds []*crowd, window time.Duration, commands, connections samples) error {
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
		commands.add(c.name, float64(c.sent.Swap(0))/window.Seconds())
		connections.add(c.name, float64(len(c.addrs)))
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
