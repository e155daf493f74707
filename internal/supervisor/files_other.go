//go:build !linux && !darwin

package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// errSystem is what this system has instead of workers.
var errSystem = fmt.Errorf("sharing sockets between processes: %w on this system", errors.ErrUnsupported)

func pair() (net.Conn, *os.File, error) { return nil, nil, errSystem }

func take(int, string) (*os.File, error) { return nil, errSystem }

// Listener is a socket that workers share.
type Listener struct{ Name string }

// Listen opens a socket for workers.
func Listen(string, *net.TCPListener) (*Listener, error) { return nil, errSystem }

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return nil }

// Control calls fn with the descriptor.
func (l *Listener) Control(func(fd uintptr)) {}

// Close closes the supervisor's copy.
func (l *Listener) Close() error { return nil }

func (l *Listener) file() (*os.File, error) { return nil, errSystem }
