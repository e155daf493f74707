//go:build unix

package listen

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// accepted is a connection of a server and its client's end.
func accepted(t *testing.T) (*conn, net.Conn) {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	l.conns = newConnections()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	k := raw.(*conn)
	k.setState(waiting)
	t.Cleanup(func() { _, _ = client.Close(), k.Close() })
	return k, client
}

func TestConnectionThatIsDueIsNotReadFrom(t *testing.T) {
	k, _ := accepted(t)
	k.expire(0)
	if n, err := k.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %d, %v", n, err)
	}
}

// The bytes arrived before the connection was due, but the goroutine that reads
// had not run.
func TestRequestThatArrivedInTimeIsRead(t *testing.T) {
	k, client := accepted(t)
	if _, err := client.Write([]byte("GET")); err != nil {
		t.Fatal(err)
	}
	until(t, "the bytes to arrive", func() bool { return pending(k.Conn) })
	k.expire(0)
	if n, err := k.Read(make([]byte, 3)); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if k.state != reading || k.due.Before(time.Now().Add(headPatience/2)) {
		t.Errorf("its head is due in %v", time.Until(k.due))
	}
}

// The deadlines of net/http and of a handler apply to a connection that is due,
// too, and their end is not taken for the connection's.
func TestEarlierDeadlineApplies(t *testing.T) {
	k, client := accepted(t)
	if err := k.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("GET")); err != nil {
		t.Fatal(err)
	}
	until(t, "the bytes to arrive", func() bool { return pending(k.Conn) })
	k.expire(0)
	if n, err := k.Read(make([]byte, 3)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %d, %v", n, err)
	}
	k.startHandler() // a handler is called: only its own deadlines apply
	if err := k.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Read(make([]byte, 3)); n != 3 || err != nil {
		t.Errorf("in a handler: %d, %v", n, err)
	}
}
