// Package rendezvous connects the processes of one user on one node, without a
// common parent process. It uses a Unix socket, and files beside the socket
// whose locks the kernel releases.
//
//	<socket>            the hub listens here
//	<socket>.lock       the process with the flock on it is the hub; never unlinked
//	<socket>.clients/   a file for each process that has connected here, with its flock on it
//
// All three are in a folder that only the user can enter. A [Socket] is such a
// socket. [Socket.Enter] connects to the hub of the socket, or takes the [HubLock]
// of the hub, which one process at a time has. The kernel releases a flock when
// the process that holds it ends, however it ends, and not when the process is
// stopped. Therefore there is never a second hub, and a process whose file is
// locked is alive.
//
// A process becomes a [ClientFile] before it sends a request to the hub. From the
// clients' files, the next holder of the hub lock learns which processes may still
// hold leases of the last hub. From the [Record] in the lock file it learns the
// maximum duration and the maximum fence of those leases, and the time of day that
// belongs to the clock of the node. The folder of the clients has a mark of the last hub:
// without it, the files of clients may have been removed with the folder, and the next
// holder of the hub lock waits for that maximum duration.
//
// Times are nanoseconds on a clock that all processes of the node share and
// that includes the time asleep. This package only compares them. It relies on
// one property of them: a boot sets the clock back.
package rendezvous

import "errors"

// ErrTaken is the error if another process has the hub lock.
var ErrTaken = errors.New("another process is the hub")
