// Package mcp is the verbs of package shell as tools of the Model Context
// Protocol, over standard input and output: locks and limits for agents.
//
//	client ── tools/call ──► server ── lock_acquire ── a lease of this process
//	                           │
//	                           └── lock_exec ── holder ── CMD, as `mega lock exec`
//
// # Leases
//
// A lease from lock_acquire belongs to the process. It is given back when the
// client releases it or has closed the connection, and when the process gets a
// signal to end; if the process is killed, the lease ends at the hub with its connection, and
// in a Redis at its TTL. The client learns of a lost lease by a message of the
// level error, if it has asked for messages, and with the next answer in any case.
//
// A command of lock_exec has a holder process of its own, which keeps X4 and X5:
// it is dead before its lease is granted to another one, and when this process is
// killed.
//
// # End
//
// The connection ends at the end of the input. Then leases are released at once,
// commands get SIGTERM, and SIGKILL after their grace, and [Serve] returns when
// every call has returned. Only frames of the protocol are written to the output.
package mcp
