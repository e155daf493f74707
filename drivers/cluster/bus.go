package cluster

import "github.com/megaframework/mega/drivers/cluster/wire"

// Bus is the bus driver of a [Node], of scope Node.
type Bus struct{ node *Node }

func newBus(n *Node) *Bus { return &Bus{node: n} }

// handle acts on a frame of the hub, on the reader's goroutine.
func (x *Bus) handle(t wire.Type, d *wire.Decoder) error { return nil }

// connected is told that there is a hub, and disconnected that there is none.
func (x *Bus) connected() {}

func (x *Bus) disconnected(why error) {}
