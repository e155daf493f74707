// Package admin is the door by which whoever operates a process reaches it
// while it runs: a Unix socket that belongs to the process's user, with HTTP
// and JSON behind it. What a process holds only in its own memory, such as the
// locks of the memory driver, is looked at and changed through it.
//
//	GET  /process         who it is: Info
//	GET  /locks           ?prefix= &limit=: Listing
//	GET  /lock            ?key=: lock.State
//	GET  /stats           of locks: lock.Stats
//	GET  /boot            the report of the boot
//	GET  /config          the configuration, secrets masked, with origins
//	GET  /routes          of every app
//	GET  /bus             Messages
//	GET  /bus/topics      []Topic
//	GET  /bus/tail        ?pattern=: Event, one on a line, until the client or the process ends
//	POST /lock/release    {key, reason} -> {released}
//	POST /config/reload   -> {changes}
//	POST /log             {app, level}
//	POST /bus/pub         Message -> {bytes}
//	POST /bus/req         Message -> Reply
//
// A supervisor has such a socket for all of its workers, with what OpenCrew adds
// to it, and each worker has one for its supervisor: see OpenWorker.
//
// The socket is <folder>/<name>.<pid>.sock, in a folder that only the user can
// enter: $XDG_RUNTIME_DIR/mega, else mega-<uid> in the temporary folder. Who
// connects is known from the system, not from what he says, and has to be the
// same user, or root. Everything that changes something is logged with his
// name.
//
// There is no such socket on Windows, where a peer's user cannot be known:
// [Open] and [Find] return ErrUnsupported.
package admin

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/private"
	"github.com/megaframework/mega/lock"
)

// ErrUnsupported says that this system cannot tell who connects.
var ErrUnsupported = errors.New("admin sockets are not supported on this system: it does not say which user connects")

// Info says which process it is.
type Info struct {
	Name   string    `json:"name"`
	PID    int       `json:"pid"`
	Env    string    `json:"env"`
	Apps   []string  `json:"apps"`
	Driver string    `json:"driver"` // of locks
	Scope  string    `json:"scope"`  // how far they reach: process, node, fleet
	Bus    Reach     `json:"bus"`
	Since  time.Time `json:"since"`
	// Meets is where the processes of a cluster meet: cluster.socket. It is empty
	// where a supervisor's workers meet at the supervisor.
	Meets string `json:"meets,omitempty"`
	// Worker is the number of a worker, from 1. Its supervisor has the Workers.
	Worker  int      `json:"worker,omitempty"`
	Workers []Worker `json:"workers,omitempty"`
}

// Reach is a driver and how far it reaches: process, node, fleet.
type Reach struct {
	Driver string `json:"driver"`
	Scope  string `json:"scope"`
}

// Process is what can be seen of a process and done to it. All of it may be
// called concurrently.
type Process struct {
	Info   Info
	Locks  *lock.Locker
	Bus    *bus.Bus
	Boot   func() any // encodes as JSON; nil while there is nothing yet
	Config func() any // encodes as JSON, with secrets masked
	Routes func() any // encodes as JSON

	// Reload reads the configuration again and returns what has changed.
	Reload func(context.Context) ([]Change, error)
	// SetLevel sets the least level that is logged of an app, or of the whole
	// process if app is empty.
	SetLevel func(app, level string) error

	Log *slog.Logger
}

// Change is a key of the configuration whose value is another one than it was.
type Change struct {
	Key    string `json:"key"`
	Old    string `json:"old"` // a secret is masked
	New    string `json:"new"`
	Origin string `json:"origin"` // of the new value
	Live   bool   `json:"live"`   // it is in force; otherwise it takes a restart
}

// Peer is who is at the other end of a connection.
type Peer = private.Peer

type peerKey struct{}

// PeerFrom returns the peer that asked for the work done with ctx.
func PeerFrom(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// Identify completes a lock's Holder with the peer that asks for it, for use in
// [lock.Config].Identify: who loses a lease is told by whom.
func Identify(ctx context.Context, h *lock.Holder) {
	p, ok := PeerFrom(ctx)
	if !ok {
		return
	}
	h.PID, h.Worker, h.Label = p.PID, 0, p.User()+", by the admin socket"
}
