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

// meeting cannot be had on this system.
type meeting struct{ met atomic.Bool }

// CheckPlace has nothing to say on this system.
func CheckPlace(string) error { return nil }

// AutoSocket has nothing to return on this system.
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
