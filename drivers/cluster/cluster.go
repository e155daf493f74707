// Package cluster shares locks and messages between the processes of one node.
//
// One of them is the hub, which keeps the table of locks and routes the
// messages. The others are its clients, each on one connection. If a process
// ends, for whatever reason, its leases and its requests end within
// milliseconds, because its connection ends with it.
//
// There are two ways to connect. Workers inherit a connection from the process
// that started them, which is the hub: this needs no path and no port.
// Unrelated processes of one user connect to a Unix socket. There, the first
// process becomes the hub, and another one takes over when that hub ends.
//
//	node, err := cluster.Dial(ctx, cluster.Config{Socket: "/run/user/1000/mega/cluster.sock"})
//	l, err := lock.New(node.Lock(), lock.Config{})
//	b, err := bus.New(node.Bus(), bus.Config{})
//
// # Messages
//
// A process puts an event straight into the queues of its own subscriptions
// without a group. The hub receives the event once, and sends it once to each
// other process that subscribes to it. Messages for a group, and all requests,
// go through the hub. For these the hub draws a process, weighted by the number
// of its members in the group, and passes over processes with a longer backlog.
// A process whose members have just been stopped gives such a message back. The
// message may then arrive after later ones.
//
// Messages that a process does not read wait in the hub, up to
// [HubConfig].Backlog. The hub drops further messages, and reports their number
// to the process for each subscription, at the position of the loss. Messages
// that the hub does not read wait in the process, up to [Config].Buffer.
//
// A hub that shuts down in order takes no new messages, delivers its queued
// ones, and ends; the messages of its clients wait for the next hub. A hub that
// dies loses its queued messages and those on their way to it. Each
// subscription then gets a gap of unknown size, and each publisher counts the
// messages that the hub had not confirmed.
package cluster

import (
	"fmt"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// magic is the first field of the protocol. Each side knows its newest version
// of the protocol and the version before. Both sides use the newest version
// that both know, and a hub refuses a client without a common version (L24).
// Within a version there may be new types, which the older side ignores.
const magic = "mega"

// versions are the oldest and the newest protocol version that a process knows.
type versions struct{ oldest, newest uint64 }

// known are the versions of this build. Version 1 was never released.
var known = versions{2, 2}

// common returns the newest version that both sides know.
func (v versions) common(of versions) (uint64, error) {
	best := min(v.newest, of.newest)
	if best < max(v.oldest, of.oldest) {
		return 0, fmt.Errorf("it speaks version %d of the protocol, the hub version %d: run builds that are at most one version apart", of.newest, v.newest)
	}
	return best, nil
}

// The types of frames.
const (
	typeHello   protocol.Type = 0x01 // magic, newest version, pid, name at the socket, nonce, oldest version: the first frame of a client
	typeWelcome protocol.Type = 0x02 // the common version, number of the client, whether typeOpen follows: the hub's answer
	typeRefused protocol.Type = 0x03 // reason: the hub's other answer
	typeBye     protocol.Type = 0x04 // the client closes its line, but its process lives on
	typeCall    protocol.Type = 0x05 // number, name, body
	typeResult  protocol.Type = 0x06 // number, whether it failed, body or error text
	typeOpen    protocol.Type = 0x07 // the hub knows all clients of an earlier hub
	typeLeaving protocol.Type = 0x08 // the hub shuts down in order: events wait for the next hub
	typeLast    protocol.Type = 0x09 // the client's answer to typeLeaving: no event follows

	typeLocks protocol.Type = 0x20 // lock frames, up to 0x3f
	typeBus   protocol.Type = 0x40 // message frames, up to 0x5f
	typeNone  protocol.Type = 0x60
)

// PlaceError is the error if processes cannot connect at a path, and a retry
// does not help.
type PlaceError struct{ Err error }

func (e *PlaceError) Error() string { return e.Err.Error() }

func (e *PlaceError) Unwrap() error { return e.Err }
