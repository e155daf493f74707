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

// meeting is not available on this system.
type meeting struct{ met atomic.Bool }

// CheckPlace returns nil: this system has no sockets to check.
func CheckPlace(string) error { return nil }

// AutoSocket returns no path on this system.
func AutoSocket() string { return "" }

func warnings(string) []string { return nil }

func openMeeting(c Config) (*meeting, error) {
	return nil, fmt.Errorf("meet at %s: %w on this system", c.Socket, errors.ErrUnsupported)
}

func (*meeting) enter(context.Context) (net.Conn, identity, error) {
	return nil, identity{}, errors.ErrUnsupported
}

func (*meeting) seen() error { return nil }

func (*meeting) bound(time.Duration) error { return nil }

func (*meeting) leave(context.Context, int64) error { return nil }
