// Package private protects the files and sockets of one user from the other
// users of a machine. It makes and checks folders that no other user can enter
// or replace, and identifies the process at the other end of a Unix socket.
//
// Supported reports whether the system can identify that process. On other
// systems every function returns ErrUnsupported.
package private

import (
	"errors"
	"os/user"
	"strconv"
)

// ErrUnsupported is the error on a system that cannot identify the user of a
// connection.
var ErrUnsupported = errors.New("this system cannot identify the user of a connection")

// ErrOpen is the error for a folder that other users can enter.
var ErrOpen = errors.New("can be entered by other users")

// Peer identifies the process at the other end of a connection.
type Peer struct{ UID, PID int }

// User returns the name of the peer's user, or the user's number as text.
func (p Peer) User() string {
	number := strconv.Itoa(p.UID)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return "uid " + number
}
