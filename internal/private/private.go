// Package private keeps what belongs to one user from the others of a machine:
// folders that nobody else can enter or replace, and who is at the other end of
// a Unix socket.
//
// Supported says where a system can tell who connects; elsewhere everything
// returns ErrUnsupported.
package private

import (
	"errors"
	"os/user"
	"strconv"
)

// ErrUnsupported says that this system cannot tell who connects.
var ErrUnsupported = errors.New("this system does not say which user connects to a socket")

// Peer is who is at the other end of a connection.
type Peer struct{ UID, PID int }

// User is the name of the peer's user, else his number as text.
func (p Peer) User() string {
	number := strconv.Itoa(p.UID)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return "uid " + number
}
