//go:build !linux && !darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// meeting cannot be had on this system.
type meeting struct{}

// CheckPlace has nothing to say on this system.
func CheckPlace(string) error { return nil }

func openMeeting(c Config) (*meeting, error) {
	return nil, fmt.Errorf("meet at %s: %w on this system", c.Socket, errors.ErrUnsupported)
}

func (*meeting) enter(context.Context) (net.Conn, string, error) {
	return nil, "", errors.ErrUnsupported
}

func (*meeting) seen() error { return nil }

func (*meeting) bound(time.Duration) error { return nil }

func (*meeting) leave(context.Context, int64) error { return nil }
