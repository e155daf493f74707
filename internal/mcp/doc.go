// Package mcp is the verbs of package shell as tools of the Model Context
// Protocol, over standard input and output: locks and limits for agents.
//
//	client ── tools/call ──► server ── lock_acquire ── a lease of this process
//	                           │
//	                           └── lock_exec ── holder ── CMD, as `mega lock exec`
//
// # Leases
//
// A lease from lock_acquire belongs to the process. It is released when the client
// releases it or closes the connection, and when the process gets a signal to end. If
// the process is killed, the lease ends with the connection at a hub, and at its TTL in
// a Redis. A lost lease is reported with the next answer, and at once by a message of
// the level error if the client has requested messages.
//
// A command of lock_exec has a holder process of its own (X4, X5): the command is
// killed before its lease can be granted to another holder, and when this process is
// killed.
//
// # End
//
// The connection ends at the end of the input. Then leases are released at once,
// commands get SIGTERM, and SIGKILL after their grace, and [Serve] returns when
// every call has returned. Only frames of the protocol are written to the output.
package mcp
