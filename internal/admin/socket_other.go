//go:build !linux && !darwin

package admin

import (
	"context"
	"net"
)

const suffix, workerSuffix = ".sock", ".worker.sock"

func listen(place) (*net.UnixListener, string, error) { return nil, "", ErrUnsupported }

func reopen(string) (*net.UnixListener, error) { return nil, ErrUnsupported }

func connect(context.Context, string) (net.Conn, error) { return nil, ErrUnsupported }

func sockets([]string) []string { return nil }

// Untrusted returns nil: there are no sockets.
func Untrusted([]string) []error { return nil }

func gone(error) bool { return false }
