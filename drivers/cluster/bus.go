package cluster

import "github.com/megaframework/mega/drivers/cluster/wire"

// Bus is the bus driver of a [Node], of scope Node.
type Bus struct{ node *Node }

func newBus(n *Node) *Bus { return &Bus{node: n} }

// handle acts on a frame of the hub, on the reader's goroutine.
func (x *Bus) handle(t wire.Type, d *wire.Decoder) error { return nil }

// connected is told that there is a hub, before anybody else is, and says what an
// earlier one knew. disconnected is told that there is none any more. Both are
// called on a reader's goroutine.
func (x *Bus) connected(s *session) {}

func (x *Bus) disconnected(why error) {}
