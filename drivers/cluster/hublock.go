package cluster

import "github.com/megaframework/mega/drivers/cluster/wire"

// hubLocks is what a hub does about locks.
type hubLocks struct{ hub *Hub }

// peerLocks is what a hub knows of a peer about locks.
type peerLocks struct{}

func newHubLocks(h *Hub) *hubLocks { return &hubLocks{hub: h} }

// handle acts on a frame of p, on its reader's goroutine.
func (h *hubLocks) handle(p *Peer, t wire.Type, d *wire.Decoder) error { return nil }

// leave is told that p is gone, on its reader's goroutine. If its process has
// ended, what it had is free.
func (h *hubLocks) leave(p *Peer, ended bool) {}

func (h *hubLocks) close() {}
