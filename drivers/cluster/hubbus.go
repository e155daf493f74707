package cluster

import "github.com/megaframework/mega/drivers/cluster/wire"

// hubBus is what a hub does about messages.
type hubBus struct{ hub *Hub }

// peerBus is what a hub knows of a peer about messages.
type peerBus struct{}

func newHubBus(h *Hub) *hubBus { return &hubBus{hub: h} }

// handle acts on a frame of p, on its reader's goroutine.
func (h *hubBus) handle(p *Peer, t wire.Type, d *wire.Decoder) error { return nil }

// leave is told that p is gone, on its reader's goroutine.
func (h *hubBus) leave(p *Peer) {}
