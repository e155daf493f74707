//go:build !linux && !darwin

package admin

import (
	"context"
	"net"
)

func listen([]string, string, int) (*net.UnixListener, string, error) { return nil, "", ErrUnsupported }

func connect(context.Context, string) (net.Conn, error) { return nil, ErrUnsupported }

func sockets([]string) []string { return nil }

func gone(error) bool { return false }
