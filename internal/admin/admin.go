// Package admin gives operators access to a running process: a Unix socket that
// belongs to the process's user and serves HTTP with JSON. It shows and changes
// state that only the process's memory holds, such as the locks of the memory
// driver.
//
//	GET  /process         its identity: Info
//	GET  /locks           ?prefix= &limit=: Listing
//	GET  /lock            ?key=: lock.State
//	GET  /stats           of locks: lock.Stats
//	GET  /limits          ?prefix= &limit=: LimitListing
//	GET  /limit           ?key=: LimitEntry
//	GET  /limit/stats     limit.Stats
//	GET  /boot            the report of the boot
//	GET  /config          the configuration, secrets masked, with origins
//	GET  /routes          of every app
//	GET  /errors          the last warnings and errors of the log, and lost leases
//	GET  /bus             Messages
//	GET  /bus/topics      []Topic
//	GET  /bus/tail        ?pattern=: Event, one on a line, until the client or the process ends
//	POST /lock/release    {key, reason, slot, fence} -> {released}; without slot and fence, of every slot
//	POST /lock/heal       {key, slot, reason}
//	POST /limit/pause     {key, for, reason}; for is in nanoseconds
//	POST /limit/reset     {key}
//	POST /config/reload   -> {changes}
//	POST /log             {app, level}
//	POST /bus/pub         Message -> {bytes}
//	POST /bus/req         Message -> Reply
//
// A supervisor has such a socket for all of its workers, with the additions of
// OpenSupervisor, and each worker has one for its supervisor: see OpenWorker.
//
// The socket is <folder>/<name>.<pid>.sock, in a folder that only the user can
// enter: $XDG_RUNTIME_DIR/mega, else mega-<uid> in the temporary folder. The
// system, not the peer, identifies the peer's user, which must be the same user
// or root. Every change is logged with that user.
//
// Windows has no such socket, because it cannot identify a peer's user: [Open]
// and [Find] return ErrUnsupported.
//
// views.go and verbs.go serve what reads and what changes, with limits.go, bus.go and
// tail.go; forward.go passes requests of a supervisor on to its workers. client.go
// finds processes and calls them. server.go, socket_unix.go and folder.go are the socket.
package admin

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/private"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// ErrUnsupported is the error of a system that cannot identify a socket's peer.
var ErrUnsupported = errors.New("admin sockets are not supported on this system: it does not report the user of a connection")

// Info identifies a process.
type Info struct {
	Name   string      `json:"name"`
	PID    int         `json:"pid"`
	Main   string      `json:"main,omitempty"` // the path of the main package
	Env    string      `json:"env"`
	Apps   []string    `json:"apps"`
	Driver string      `json:"driver"` // of locks
	Scope  string      `json:"scope"`  // how far they reach: process, node, fleet
	Bus    DriverScope `json:"bus"`
	Limit  DriverScope `json:"limit"`
	Since  time.Time   `json:"since"`
	// Ops is the URL of the listener of ops.addr. A worker has none.
	Ops string `json:"ops,omitempty"`
	// Meets is the cluster socket: cluster.socket. It is empty if a
	// supervisor's workers use the supervisor's own hub.
	Meets string `json:"meets,omitempty"`
	// Worker is the number of a worker, from 1. A supervisor's Info lists its
	// Workers.
	Worker  int      `json:"worker,omitempty"`
	Workers []Worker `json:"workers,omitempty"`
}

// DriverScope is a driver and its scope: process, node, fleet.
type DriverScope struct {
	Driver string `json:"driver"`
	Scope  string `json:"scope"`
}

// Process is the interface of a process for the socket. All fields must be safe
// for concurrent calls.
type Process struct {
	Info   Info
	Locks  *lock.Locker
	Limits *limit.Limiter
	Bus    *bus.Bus
	Boot   func() any // encodes as JSON; returns nil before the boot has a report
	Config func() any // encodes as JSON, with secrets masked
	Routes func() any // encodes as JSON
	Errors func() any // the last warnings and errors; encodes as JSON; nil without

	// Reload reads the configuration again and returns the changes.
	Reload func(context.Context) ([]config.Change, error)
	// SetLevel sets the minimum log level of an app, or of the whole process if
	// app is empty.
	SetLevel func(app, level string) error

	Log *slog.Logger
}

// Peer is the other end of a connection.
type Peer = private.Peer

type peerKey struct{}

type operatorKey struct{}

// WithOperator returns a context for work that a user of the console has
// requested. The operator describes the user, as far as that is known.
func WithOperator(ctx context.Context, operator string) context.Context {
	return context.WithValue(ctx, operatorKey{}, operator)
}

func operatorFrom(ctx context.Context) (operator string, ok bool) {
	operator, ok = ctx.Value(operatorKey{}).(string)
	return operator, ok
}

// peerFrom returns the peer that requested the work of ctx.
func peerFrom(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// Identify adds the requesting operator or peer to a lock's Holder, for use in
// [lock.Config].Identify, so that the holder of a lost lease learns the name of
// the operator.
func Identify(ctx context.Context, h *lock.Holder) {
	if operator, ok := operatorFrom(ctx); ok {
		h.Label = operator + ", by the console"
		return
	}
	p, ok := peerFrom(ctx)
	if !ok {
		return
	}
	h.PID, h.Worker, h.Label = p.PID, 0, p.User()+", by the admin socket"
}
