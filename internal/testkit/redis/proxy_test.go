package redistest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// client speaks inline commands and reads lines, so that these tests see every
// byte and have no client library between them and the proxy.
type client struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func connect(t *testing.T, p *redistest.Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) send(command string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, command+"\r\n")
	must(c.t, err)
}

func (c *client) read(within time.Duration) (string, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(within))
	line, err := c.in.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c *client) wants(line string) {
	c.t.Helper()
	if got, err := c.read(5 * time.Second); got != line || err != nil {
		c.t.Errorf("read %q, %v, want %q", got, err, line)
	}
}

func (c *client) wantsNothing() {
	c.t.Helper()
	if got, err := c.read(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("read %q, %v, want nothing", got, err)
	}
}

func setup(t *testing.T) (*redistest.Server, *redistest.Proxy) {
	t.Helper()
	s := redistest.Start(t, redistest.Options{})
	return s, redistest.StartProxy(t, s, nil)
}

func TestProxyCountsCommandsByName(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	p := redistest.StartProxy(t, s, func(args []string) string {
		if len(args) > 1 && redistest.FirstWord(args) == "SET" {
			return "set " + args[1]
		}
		return "other"
	})
	c := connect(t, p)
	for range 2 {
		c.send("SET a 1")
		c.wants("+OK")
	}
	c.send("PING")
	c.wants("+PONG")
	if got := p.Counts(); got["set a"] != 2 || got["other"] != 1 || p.Count("set a") != 2 {
		t.Errorf("counts = %v", got)
	}
	p.ResetCounts()
	if got := p.Counts(); len(got) != 0 {
		t.Errorf("counts after reset = %v", got)
	}
}

func TestDroppedReplyWasExecutedAndTheConnectionStaysOpen(t *testing.T) {
	s, p := setup(t)
	c := connect(t, p)
	f := p.DropReply(redistest.Named("SET"))
	c.send("PING\r\nSET k v\r\nGET k")
	c.wants("+PONG")
	<-f.Hit()
	c.wantsNothing()
	if got := do(t, s, "GET", "k"); got != "v" {
		t.Errorf("k = %v, want v", got)
	}
	other := connect(t, p)
	other.send("SET k w")
	other.wants("+OK")
	if got := f.Command().Args; len(got) != 3 || got[1] != "k" {
		t.Errorf("struck %q", got)
	}
}

func TestResetAfterStrikesOnceTheServerHasExecuted(t *testing.T) {
	s, p := setup(t)
	c := connect(t, p)
	p.ResetAfter(redistest.Named("SET"))
	c.send("SET k v")
	if _, err := c.read(5 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want a reset", err)
	}
	if got := do(t, s, "GET", "k"); got != "v" {
		t.Errorf("k = %v, want v", got)
	}
}

func TestDelayedReplyIsLateAndOrderIsKept(t *testing.T) {
	_, p := setup(t)
	c := connect(t, p)
	p.DelayReply(redistest.Named("SET"), 150*time.Millisecond)
	start := time.Now()
	c.send("SET k v\r\nPING")
	c.wants("+OK")
	c.wants("+PONG")
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("the replies took %v, want 150ms or more", took)
	}
}

func TestHeldReplyArrivesAtRelease(t *testing.T) {
	s, p := setup(t)
	c := connect(t, p)
	f := p.HoldReply(redistest.Named("SET"))
	c.send("SET k v")
	<-f.Hit()
	c.wantsNothing()
	if got := do(t, s, "GET", "k"); got != "v" {
		t.Errorf("k = %v, want v", got)
	}
	f.Release()
	c.wants("+OK")
}

func TestHeldRequestArrivesLaterEvenFromAClosedConnection(t *testing.T) {
	s, p := setup(t)
	c := connect(t, p)
	f := p.HoldRequest(redistest.Named("SET"))
	c.send("SET k v")
	<-f.Hit()
	c.conn.Close()
	if got := do(t, s, "GET", "k"); got != nil {
		t.Errorf("k = %v before the release, want nil", got)
	}
	f.Release()
	waitFor(t, "the late SET", func() bool { return do(t, s, "GET", "k") == "v" })
	waitFor(t, "the link to end", func() bool { return p.Links() == 0 })
}

func TestRecordedCommandCanBeRedelivered(t *testing.T) {
	s, p := setup(t)
	c := connect(t, p)
	f := p.Record(redistest.Named("INCR"))
	c.send("INCR n")
	c.wants(":1")
	if got, err := f.Redeliver(); got != int64(2) || err != nil {
		t.Errorf("Redeliver = %v, %v, want 2", got, err)
	}
	if got := do(t, s, "GET", "n"); got != "2" {
		t.Errorf("n = %v, want 2", got)
	}
}

func TestCancelledFaultDoesNotStrike(t *testing.T) {
	_, p := setup(t)
	c := connect(t, p)
	p.DropReply(redistest.Named("PING")).Cancel()
	c.send("PING")
	c.wants("+PONG")
}

func TestOneHeldDirectionLetsTheOtherPass(t *testing.T) {
	s, p := setup(t)
	c := connect(t, p)
	p.Hold(redistest.Replies)
	c.send("SET k v")
	waitFor(t, "the request to pass", func() bool { return do(t, s, "GET", "k") == "v" })
	c.wantsNothing()
	p.Heal()
	c.wants("+OK")

	p.Hold(redistest.Requests)
	c.send("SET k w")
	c.wantsNothing()
	if got := do(t, s, "GET", "k"); got != "v" {
		t.Errorf("k = %v while requests are held, want v", got)
	}
	p.Heal()
	c.wants("+OK")
}

func TestPartitionIsSilentAndDeliversWhenItHeals(t *testing.T) {
	s, p := setup(t)
	old := connect(t, p)
	old.send("PING")
	old.wants("+PONG")
	p.Partition()
	old.send("SET a 1")
	fresh := connect(t, p)
	fresh.send("SET b 1")
	old.wantsNothing()
	fresh.wantsNothing()
	if got := do(t, s, "DBSIZE"); got != int64(0) {
		t.Errorf("%v keys arrived through a partition", got)
	}
	p.Heal()
	old.wants("+OK")
	fresh.wants("+OK")
}

func TestServerBehindAPartitionDoesNotSeeClosedConnections(t *testing.T) {
	s, p := setup(t)
	c := connect(t, p)
	c.send("PING")
	c.wants("+PONG")
	p.Partition()
	c.conn.Close()
	never(t, 100*time.Millisecond, "the server saw the connection close", func() bool { return clients(t, s) == 0 })
	p.Heal()
	waitFor(t, "the server to see it", func() bool { return clients(t, s) == 0 })
}

func TestWayDelayShiftsTrafficWithoutSlowingIt(t *testing.T) {
	_, p := setup(t)
	c := connect(t, p)
	const delay = 200 * time.Millisecond // 10s if each command had to wait for the one before
	p.Delay(redistest.Requests, delay)
	start := time.Now()
	c.send(strings.Repeat("PING\r\n", 49) + "PING")
	for range 50 {
		c.wants("+PONG")
	}
	if took := time.Since(start); took < delay || took > 5*time.Second {
		t.Errorf("50 pipelined commands took %v, want a little more than %v", took, delay)
	}
}

func TestPushesAreNotTakenForReplies(t *testing.T) {
	for _, hello := range []string{"", "HELLO 3"} {
		t.Run("hello="+hello, func(t *testing.T) {
			s, p := setup(t)
			c := connect(t, p)
			if hello != "" {
				c.send(hello)
				c.skipTo("*0")
			}
			subscribed := p.Record(redistest.Named("SUBSCRIBE"))
			c.send("SUBSCRIBE one two")
			<-subscribed.Hit()
			waitFor(t, "the subscriptions", func() bool { return do(t, s, "PUBLISH", "two", "hi") == int64(1) })
			f := p.DropReply(redistest.Named("PING"))
			c.send("PING lost")
			<-f.Hit()
			do(t, s, "PUBLISH", "one", "late")
			c.skipTo("hi")
			c.wantsNothing()
		})
	}
}

func TestRefusingServerIsPassedOn(t *testing.T) {
	s, p := setup(t)
	must(t, s.Kill())
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return // the reset was faster than the dialer
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v, want a closed connection", err)
	}
}

func TestKilledServerClosesItsClients(t *testing.T) {
	s, p := setup(t)
	c := connect(t, p)
	c.send("PING")
	c.wants("+PONG")
	must(t, s.Kill())
	if _, err := c.read(5 * time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v, want a closed connection", err)
	}
}

func (c *client) skipTo(line string) {
	c.t.Helper()
	for {
		got, err := c.read(5 * time.Second)
		if err != nil {
			c.t.Fatalf("waiting for %q: %v", line, err)
		}
		if got == line {
			return
		}
	}
}

func clients(t *testing.T, s *redistest.Server) int {
	t.Helper()
	list, err := s.Clients()
	must(t, err)
	return len(list)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 5s for %s", what)
		}
	}
}

func never(t *testing.T, during time.Duration, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if happened() {
			t.Fatal(what)
		}
	}
}
