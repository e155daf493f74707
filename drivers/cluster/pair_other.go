//go:build !linux && !darwin

package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// Pair returns an error on this system.
func Pair() (here net.Conn, there *os.File, err error) {
	return nil, nil, fmt.Errorf("make a pair of sockets: %w on this system", errors.ErrUnsupported)
}

// Inherited returns an error on this system.
func Inherited(int) (net.Conn, error) {
	return nil, fmt.Errorf("inherit a connection: %w on this system", errors.ErrUnsupported)
}
