package listen

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// until polls for a state of the system that gives no signal.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// pipe is a connection of a server and its client's end.
func pipe(t *testing.T) (*conn, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return &conn{Conn: here, conns: newConnections()}, there
}

func TestClientThatTakesNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := pipe(t)
		began := time.Now()
		n, err := k.Write(make([]byte, 100))
		if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != stallTime {
			t.Errorf("got %d, %v after %v", n, err, time.Since(began))
		}
	})
}

// A slow client gets a large answer, as long as it takes some of it in time.
func TestSlowClientIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, client := pipe(t)
		const size = 20
		go func() {
			for range size {
				time.Sleep(stallTime - time.Second)
				_, _ = client.Read(make([]byte, 1))
			}
		}()
		began := time.Now()
		n, err := k.Write(make([]byte, size))
		if n != size || err != nil || time.Since(began) < (size-1)*(stallTime-time.Second) {
			t.Errorf("got %d, %v after %v", n, err, time.Since(began))
		}
	})
}

func TestSilenceIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, client := pipe(t)
		for range 3 {
			go func() { _, _ = client.Read(make([]byte, 1)) }()
			if _, err := k.Write([]byte("a")); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
		}
	})
}

// Where a handler has set a bound of its own, the connection's is no reason to
// go on beyond it.
func TestHandlerSetsItsOwnBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, client := pipe(t)
		go func() {
			for range 2 {
				time.Sleep(10 * time.Second)
				_, _ = client.Read(make([]byte, 1))
			}
		}()
		began := time.Now()
		if err := k.SetDeadline(began.Add(25 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := k.Write(make([]byte, 100))
		if n != 2 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 25*time.Second {
			t.Errorf("got %d, %v after %v", n, err, time.Since(began))
		}
	})
}
