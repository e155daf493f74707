//go:build !linux && !darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// presence is not available on this system.
type presence struct{ connected atomic.Bool }

// CheckSocket returns nil: this system has no sockets to check.
func CheckSocket(string) error { return nil }

// AutoSocket returns no path on this system.
func AutoSocket() string { return "" }

func warnings(string) []string { return nil }

func openPresence(c Config) (*presence, error) {
	return nil, fmt.Errorf("connect at %s: %w on this system", c.Socket, errors.ErrUnsupported)
}

func (*presence) enter(context.Context) (net.Conn, identity, error) {
	return nil, identity{}, errors.ErrUnsupported
}

func (*presence) clients() (int, bool) { return 0, false }

func (*presence) seen() error { return nil }

func (*presence) bound(time.Duration) error { return nil }

func (*presence) leave(context.Context, int64) error { return nil }
