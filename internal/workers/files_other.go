//go:build !linux && !darwin

package workers

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// errSystem is the error on a system that cannot share sockets between workers.
var errSystem = fmt.Errorf("sharing sockets between processes: %w on this system", errors.ErrUnsupported)

func take(int, string) (*os.File, error) { return nil, errSystem }

// Listener is a socket that workers share.
type Listener struct{ Name string }

// Listen returns an error on this system.
func Listen(string, *net.TCPListener) (*Listener, error) { return nil, errSystem }

// Control does nothing on this system.
func (l *Listener) Control(func(fd uintptr)) {}

// Close does nothing on this system.
func (l *Listener) Close() error { return nil }

func (l *Listener) file() (*os.File, error) { return nil, errSystem }
