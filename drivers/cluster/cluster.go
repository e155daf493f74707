// Package cluster shares locks and messages between the processes of one node.
//
// One of them has the hub, which keeps the table of locks and routes the
// messages; the others are its peers, each over one connection. A process that
// ends, however it does, frees what it held and asked for within milliseconds,
// because its connection ends with it.
//
// There are two ways to meet. Workers inherit a connection from the process
// that started them, which has the hub: there is no path and no port. Unrelated
// processes of one user meet at a Unix socket, where the first to come has the
// hub and another takes over when it is gone.
//
//	node, err := cluster.Dial(ctx, cluster.Config{Socket: "/run/user/1000/mega/cluster.sock"})
//	l, err := lock.New(node.Lock(), lock.Config{})
//	b, err := bus.New(node.Bus(), bus.Config{})
//
// # Messages
//
// An event goes straight into the queues of its own process's subscriptions
// without a group. The hub gets it once, and sends it once to each other process
// that wants it. What is for a group, and every request, goes by the hub, which
// draws a process by the number of its members and passes over those that have
// more to do; a process whose members have just been stopped gives it back, and
// then it may come after later ones.
//
// Messages that a process does not read wait in the hub, up to
// [HubConfig].Backlog. Further messages are dropped, and the process hears how many
// for each interest, at the place where they are missing. Messages that the hub
// does not read wait in the process, up to [Config].Buffer.
//
// A hub that leaves in order takes no new messages, delivers those that it has,
// and ends; the messages of its clients wait for the next hub. A hub that dies
// loses the messages that it has and those on their way to it: each subscription
// gets a gap of unknown size, and each publisher counts what the hub had not
// confirmed.
package cluster

import (
	"fmt"

	"github.com/megaframework/mega/drivers/cluster/wire"
)

// The language that peers speak. Each side knows its newest version and the one
// before; they speak the newest that both know, and a peer without one in common
// is refused (L24). Within a version there may be new types, which the older side
// ignores.
const magic = "mega"

// versions are the oldest and the newest version that a process knows.
type versions struct{ oldest, newest uint64 }

// known are the versions of this build. Version 1 was never released.
var known = versions{2, 2}

// common returns the newest version that both know.
func (v versions) common(of versions) (uint64, error) {
	best := min(v.newest, of.newest)
	if best < max(v.oldest, of.oldest) {
		return 0, fmt.Errorf("it speaks version %d of the protocol, the hub version %d: run builds that are at most one version apart", of.newest, v.newest)
	}
	return best, nil
}

// The types of frames.
const (
	typeHello   wire.Type = 0x01 // magic, newest version, pid, name at the socket, nonce, oldest version: the first frame of a peer
	typeWelcome wire.Type = 0x02 // the version that both speak, number of the peer, whether typeOpen follows: the hub's answer
	typeRefused wire.Type = 0x03 // why: its other answer
	typeBye     wire.Type = 0x04 // the peer closes its line and goes on living
	typeCall    wire.Type = 0x05 // number, name, body
	typeResult  wire.Type = 0x06 // number, whether it failed, body or error text
	typeOpen    wire.Type = 0x07 // the hub knows of all peers of an earlier one
	typeLeaving wire.Type = 0x08 // the hub ends in order: events wait for the next one
	typeLast    wire.Type = 0x09 // the peer's answer: no event follows

	typeLocks wire.Type = 0x20 // from here to 0x3f
	typeBus   wire.Type = 0x40 // from here to 0x5f
	typeNone  wire.Type = 0x60
)

// PlaceError says that processes cannot meet at a path, and that trying again
// does not help.
type PlaceError struct{ Err error }

func (e *PlaceError) Error() string { return e.Err.Error() }

func (e *PlaceError) Unwrap() error { return e.Err }
