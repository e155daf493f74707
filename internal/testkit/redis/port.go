package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddr is FindAddr for a test.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, err := FindAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// FindAddr returns a loopback address that nobody uses now, for a program that is
// about to start. Its port lies below the range from which systems take the ports
// of outgoing connections and of listeners on port 0, so that none of those has it
// before the program listens, or when a killed server wants it back.
func FindAddr() (string, error) {
	port, err := freePort()
	return address(port), err
}

// freePort returns the port of a FindAddr.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		var l net.Listener
		if l, err = listen(address(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("redistest: find a free port: %w", err)
}

func listen(addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
