// Package rendezvous is where the processes of one user on one node find each
// other without anybody who started them all: a Unix socket, and files beside
// it that the kernel keeps honest.
//
//	<socket>            where the hub listens
//	<socket>.lock       whoever has the flock on it is the hub; never unlinked
//	<socket>.clients/   a file for each process that has met here, with its flock on it
//
// All three are in a folder that only the user can enter. A [Place] is such a
// socket; [Place.Enter] connects to its hub, or takes the [Seat] of the hub,
// which one process at a time has. The kernel frees a flock when the process
// that has it ends, however it ends, and not when it is stopped: so there is
// never a second hub, and a process whose file is locked lives.
//
// Before a process asks the hub for anything it becomes a [Member]. Who takes
// the seat knows from that which processes may still hold something that the
// last hub gave them, and from the [Record] in the lock file how long and how
// much at most.
//
// Times are nanoseconds on a clock that all processes of the node share and
// that counts the time asleep. This package compares them, and knows no more of
// them than that a boot sets the clock back.
package rendezvous

import "errors"

// ErrTaken says that another process has the seat.
var ErrTaken = errors.New("another process is the hub")
