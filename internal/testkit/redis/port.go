package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
)

// freePort returns a loopback port that nobody uses now. It lies below the
// range from which systems take the ports of outgoing connections, so that
// none of those has it when a killed server wants it back.
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
