package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
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
// before the program listens, or when a killed server wants it back. No other call
// returns it while this process lives, in this process and in others.
func FindAddr() (string, error) {
	port, err := freePort()
	return address(port), err
}

// freePort returns the port of a FindAddr.
func freePort() (int, error) {
	if _, err := portsFile(); err != nil {
		return 0, fmt.Errorf("redistest: reserve a port: %w", err)
	}
	err := errors.New("all are reserved")
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		if !reserve(port) {
			continue
		}
		var l net.Listener
		if l, err = listen(address(port)); err == nil {
			return port, l.Close()
		}
		release(port)
	}
	return 0, fmt.Errorf("redistest: find a free port: %w", err)
}

// ports are the ports that this process has reserved.
var ports = struct {
	mu   sync.Mutex // guards the field below
	ours map[int]bool
}{ours: map[int]bool{}}

// portsFile opens the file in which processes reserve a port by a lock on the byte
// with that number. The locks end with the process. It never closes the file, which
// would end them too.
var portsFile = sync.OnceValues(func() (*os.File, error) {
	return os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("mega-test-ports-%d", os.Getuid())), os.O_RDWR|os.O_CREATE, 0o600)
})

// reserve keeps the port from later calls in all processes, and reports whether it
// was not reserved.
func reserve(port int) bool {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	file, err := portsFile()
	if err != nil || ports.ours[port] || !lockByte(file, port) {
		return false
	}
	ports.ours[port] = true
	return true
}

// release ends a reservation.
func release(port int) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if file, err := portsFile(); err == nil && ports.ours[port] {
		delete(ports.ours, port)
		unlockByte(file, port)
	}
}

func listen(addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
