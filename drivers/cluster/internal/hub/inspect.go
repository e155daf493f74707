package hub

import (
	"net"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// The functions of this file are for the tests of package cluster, which see
// the state of a hub and bring it into rare states. They are functions, so that
// they do not belong to the types that package cluster exports.

// Clients returns the clients of h in the order in which they connected.
func Clients(h *Hub) []*Client { return h.list() }

// Line returns the connection of c.
func Line(c *Client) *protocol.Line { return c.line }

// Number returns the number that the hub gave to c.
func Number(c *Client) uint64 { return c.number }

// Unanswered returns the number of requests that p has not answered.
func Unanswered(c *Client) int64 { return c.bus.unanswered.Load() }

// IsFull reports whether the hub drops messages for c.
func IsFull(c *Client) bool { return c.bus.full.Load() }

// Subscribed reports whether the hub knows the subscription of that number.
func Subscribed(c *Client, number uint64) bool {
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	return c.bus.registrations[number] != nil
}

// Subscriptions returns the number of subscriptions that h knows.
func Subscriptions(h *Hub) (n int) {
	for _, t := range h.bus.tables {
		n += t.Len()
	}
	return n
}

// Table returns the table of locks.
func Table(h *Hub) *table.Table { return h.locks.table }

// PushLost reports to c that the grant of token is lost.
func PushLost(h *Hub, c *Client, token string, why error) {
	h.locks.push(c, table.Event{Kind: table.Lost, Grant: driver.Grant{Token: token}, Err: why})
}

// Speak makes h use other versions of the protocol. It is called before the
// first client joins.
func Speak(h *Hub, v protocol.Versions) { h.speaks = v }

// OnReported makes h call f when a client has reported its leases.
func OnReported(h *Hub, f func(*Client)) { h.locks.reported = f }

// JoinWithin does the same as Join, with other limits before hello.
func JoinWithin(h *Hub, conn net.Conn, x protocol.Limits) *Client {
	return h.join(conn, "limited", x)
}
