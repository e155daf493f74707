package cluster

import "github.com/megaframework/mega/drivers/cluster/wire"

// Lock is the lock driver of a [Node], of scope Node.
type Lock struct{ node *Node }

func newLock(n *Node) *Lock { return &Lock{node: n} }

// handle acts on a frame of the hub, on the reader's goroutine.
func (x *Lock) handle(t wire.Type, d *wire.Decoder) error { return nil }

// connected is told that there is a hub, before anybody else is, and says what an
// earlier one knew. disconnected is told that there is none any more. Both are
// called on a reader's goroutine.
func (x *Lock) connected(s *session) {}

func (x *Lock) disconnected(why error) {}
