// Package nonblock reads and writes sockets without an announcement to Go's scheduler.
//
// The runtime announces each system call to its scheduler, because it may block.
// In a process at rest the announcement wakes the thread that watches for blocked
// calls (sysmon), which then runs for a while, beside the work. A call on a
// socket that does not block ends within microseconds, so there is nothing to
// watch. Without the announcement a process that hands a lock over has 7 in place
// of 11 switches of threads.
//
// A [Watch] lets one goroutine wait for data on a connection while another one reads
// it.
//
// Reads and writes have an effect on Linux, except under the race detector, which orders memory
// by the system calls of package syscall. On other systems the connections of the
// standard library are used.
package nonblock

// most is the largest number of bytes that one call moves: about 20 µs, for which
// a collection of garbage may wait for it.
const most = 64 << 10
