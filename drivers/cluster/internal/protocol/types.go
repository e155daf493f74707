package protocol

import "fmt"

// Magic is the first field of the protocol. Each side knows its newest version
// of the protocol and the version before. Both sides use the newest version
// that both know, and a hub refuses a client without a common version (L24).
// Within a version there may be new types, and new fields at the end of a frame,
// which the older side ignores. A version that is not released yet may change.
const Magic = "mega"

// Versions are the oldest and the newest protocol version that a process knows.
type Versions struct{ Oldest, Newest uint64 }

// Known are the versions of this build. Version 1 was never released.
var Known = Versions{2, 2}

// Common returns the newest version that both sides know.
func (v Versions) Common(of Versions) (uint64, error) {
	best := min(v.Newest, of.Newest)
	if best < max(v.Oldest, of.Oldest) {
		return 0, fmt.Errorf("it speaks version %d of the protocol, the hub version %d: run builds that are at most one version apart", of.Newest, v.Newest)
	}
	return best, nil
}

// The types of frames.
const (
	TypeHello   Type = 0x01 // magic, newest version, pid, name at the socket, nonce, oldest version: the first frame of a client
	TypeWelcome Type = 0x02 // the common version, number of the client, whether TypeOpen follows, epoch of the limits, number of the hub, number of the hub before it: the hub's answer
	TypeRefused Type = 0x03 // reason, whether it may pass by itself: the hub's other answer
	TypeBye     Type = 0x04 // the client closes its line, but its process lives on
	TypeCall    Type = 0x05 // number, name, body
	TypeResult  Type = 0x06 // number, whether it failed, body or error text
	TypeOpen    Type = 0x07 // the hub knows all clients of an earlier hub
	TypeLeaving Type = 0x08 // the hub shuts down in order: events wait for the next hub
	TypeLast    Type = 0x09 // the client's answer to each TypeLeaving: no event follows
	TypeWhole   Type = 0x0a // the hub has sent all its events: the client has missed none, except for the gaps that were reported to it
	TypeAbsent  Type = 0x0b // the hub opens before the client has reported its subscriptions
	TypePart    Type = 0x0c // number, whether it belongs to a result, bytes: a part of a body that is longer than a frame, before the frame with the rest; without bytes the parts before it are void

	TypeLocks  Type = 0x20 // lock frames, up to 0x3f
	TypeBus    Type = 0x40 // message frames, up to 0x5f
	TypeLimits Type = 0x60 // limit frames, up to 0x6f; a hub or client of an earlier build ignores them
	TypeEnd    Type = 0x70
)
