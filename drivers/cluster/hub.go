package cluster

import (
	"log/slog"

	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// HubConfig configures a Hub. The zero value is valid.
type HubConfig struct {
	Log *slog.Logger // nil disables logging
	// Backlog is how many bytes may wait for a client before the hub drops and
	// counts further messages for it; 64 MiB by default. All clients together have
	// 512 MiB: with more than 8, each has an equal part if that is less, at least 1 MiB.
	Backlog int
	// Clients is how many clients may be connected; 1024 by default. The hub
	// refuses further ones.
	Clients int
	// Handle answers calls from clients. It may be nil.
	Handle Handler
}

// Hub keeps the table of locks and the routes of messages of a node. It never
// waits for a client. A program needs one only for processes that inherit their
// connections; at a socket, [Dial] makes the hub.
//
// Its method Join makes the process at the other end of a connection a client,
// and Close ends all connections.
type Hub = hub.Hub

// Client is a client of a hub: a connected process, as the hub sees it. Its
// methods Name, PID and String describe the process, Call calls its Handler,
// and Done and Err report the end of its connection. They may be called
// concurrently.
type Client = hub.Client

// Handler answers a call: a request by name, for communication between the
// hub's process and its clients apart from locks and messages. Each call has a
// goroutine; ctx ends when the caller's connection ends. From is nil at a
// client, which the hub calls. The Handler may keep the body.
type Handler = hub.Handler

// CallError is the error of a call whose Handler has failed.
type CallError = protocol.CallError

// NewHub returns a hub without clients.
func NewHub(c HubConfig) *Hub { return hub.New(hub.Config(c)) }
