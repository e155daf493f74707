package hub

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// hubLimits answers the calls about limits. Each call has a goroutine, and the
// table decides about it without waiting.
type hubLimits struct {
	hub   *Hub
	table *windows.Table
	// copied reports that every client has a copy of the table, because another
	// process may become the hub: at a socket.
	copied bool

	// mu keeps the state that a new client is sent in order with the decisions:
	// a decision that comes first is in the state, too.
	mu sync.Mutex
}

// clientLimits are the tickets of a client, which end with it.
type clientLimits struct {
	mu      sync.Mutex
	tickets map[string]struct{}
}

func newHubLimits(h *Hub) *hubLimits {
	return &hubLimits{hub: h, table: windows.New(protocol.NodeMicros)}
}

// serve answers a call of c. It reports whether the call is about limits.
func (h *hubLimits) serve(c *Client, name string, body []byte) (answer []byte, err error, ours bool) {
	var out any
	switch name {
	case protocol.LimitTake:
		out, err = answered(body, func(r *driver.Request) (driver.Answer, error) { return h.take(c, r) })
	case protocol.LimitWithdraw:
		_, err = answered(body, func(r *driver.Request) (any, error) {
			return nil, h.change(h.table.Withdraw(r), protocol.News{Withdraw: r})
		})
	case protocol.LimitSettle:
		_, err = answered(body, func(s *driver.Settlement) (any, error) {
			if err := protocol.CheckRates(s.Rates); err != nil {
				return nil, err
			}
			return nil, h.change(h.table.Settle(s), protocol.News{Settle: s})
		})
	case protocol.LimitPause:
		_, err = answered(body, func(of *protocol.LimitOf) (any, error) {
			return nil, h.change(h.table.Pause(of.Key, of.Pause), protocol.News{Pause: of})
		})
	case protocol.LimitReset:
		_, err = answered(body, func(of *protocol.LimitOf) (any, error) {
			return nil, h.change(h.table.Reset(of.Key), protocol.News{Reset: of})
		})
	case protocol.LimitInspect:
		out, err = answered(body, func(of *protocol.LimitOf) (driver.State, error) {
			if err := protocol.CheckRates(of.Rates); err != nil {
				return driver.State{}, err
			}
			return h.table.Inspect(of.Key, of.Rates)
		})
	case protocol.LimitList:
		out, err = answered(body, func(of *protocol.LimitOf) ([]driver.State, error) { return h.table.List(of.Key) })
	default:
		return nil, nil, false
	}
	if err == nil && out != nil {
		answer, err = json.Marshal(out)
	}
	return answer, err, true
}

// answered decodes the body of a call and calls do.
func answered[In, Out any](body []byte, do func(*In) (Out, error)) (Out, error) {
	var in In
	if err := json.Unmarshal(body, &in); err != nil {
		var none Out
		return none, fmt.Errorf("decode the call: %w", err)
	}
	return do(&in)
}

func (h *hubLimits) take(c *Client, r *driver.Request) (driver.Answer, error) {
	if err := protocol.CheckRates(r.Rates); err != nil {
		return driver.Answer{}, err
	}
	c.limits.know(r.Ticket)
	a, err := h.table.Take(r)
	if err == nil && a.Granted {
		h.publish(protocol.News{Take: r, At: a.At})
	}
	return a, err
}

// change publishes a change unless it has failed.
func (h *hubLimits) change(err error, news protocol.News) error {
	if err == nil {
		h.publish(news)
	}
	return err
}

// publish sends a decision to the copies, before the answer to the client that
// has caused it: a grant that a client acts upon counts at the next hub (W1).
func (h *hubLimits) publish(news protocol.News) {
	if !h.copied {
		return
	}
	var b batch
	h.mu.Lock()
	for _, c := range h.hub.list() {
		if !c.knowsRecords.Load() {
			continue
		}
		if f, err := protocol.AddJSON(protocol.Begin(protocol.LimitNews), news); err == nil { // it was decoded from JSON
			b.send(c, f)
		}
	}
	h.mu.Unlock()
	b.flush()
}

// introduce sends the state of all keys to a new client.
func (h *hubLimits) introduce(c *Client) {
	if !h.copied {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.table.Records() {
		if f, err := protocol.AddJSON(protocol.Begin(protocol.LimitRecord), r); err == nil { // it has numbers and texts
			c.send(f)
		}
	}
}

// restore adds what a client knows from an earlier hub.
func (h *hubLimits) restore(d *protocol.Decoder) error {
	var r windows.Record
	if err := protocol.ReadJSON(d, &r); err != nil {
		return err
	}
	if err := protocol.CheckLimitRecord(&r); err != nil {
		return fmt.Errorf("a limit: %w", err)
	}
	return h.table.Restore(r)
}

// leave takes the tickets of a client that has gone out of the queues (W7).
func (h *hubLimits) leave(c *Client) {
	for _, ticket := range c.limits.all() {
		h.table.Drop(ticket)
	}
}

func (t *clientLimits) know(ticket string) {
	if ticket == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tickets == nil {
		t.tickets = map[string]struct{}{}
	}
	t.tickets[ticket] = struct{}{}
}

func (t *clientLimits) all() (tickets []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ticket := range t.tickets {
		tickets = append(tickets, ticket)
	}
	return tickets
}
