package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

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
	// met is closed when every client of an earlier hub is back, or has had the time
	// for it: decisions wait for the copies of these clients. It is nil without a socket.
	met <-chan struct{}
	// epoch is the time of day, in microseconds since 1970, at which the node's
	// clock read 0. The clients date grants with it: it is the same for all of
	// them and at later hubs, whenever they started.
	epoch int64

	// mu keeps decisions in the order in which the copies learn of them, and the
	// state that a new client is sent in order with them.
	mu     sync.Mutex
	copies map[*Client]*limitCopy // of the welcomed clients
	report limitReport
}

// clientLimits are the tickets of a client, which end with it.
type clientLimits struct {
	mu      sync.Mutex
	tickets map[string]struct{}
	left    bool // the connection has ended; a call may still be under way
}

func newHubLimits(h *Hub) *hubLimits {
	return &hubLimits{hub: h, table: windows.New(protocol.NodeMicros), epoch: protocol.Epoch(), copies: make(map[*Client]*limitCopy)}
}

// serve answers a call of c. It reports whether the call is about limits.
func (h *hubLimits) serve(ctx context.Context, c *Client, name string, body []byte) (answer []byte, err error, ours bool) {
	if strings.HasPrefix(name, protocol.LimitCalls) {
		if err := h.reports(ctx, name, body); err != nil {
			return nil, err, true
		}
	}
	var out any
	switch name {
	case protocol.LimitTake:
		out, err = answered(body, func(r *driver.Request) (driver.Answer, error) { return h.take(c, r) })
	case protocol.LimitWithdraw:
		_, err = answered(body, func(r *driver.Request) (any, error) {
			return nil, h.change(&protocol.News{Withdraw: r})
		})
	case protocol.LimitSettle:
		_, err = answered(body, func(s *driver.Settlement) (any, error) {
			return nil, h.change(&protocol.News{Settle: s})
		})
	case protocol.LimitPause:
		_, err = answered(body, func(of *protocol.LimitOf) (any, error) {
			return nil, h.change(&protocol.News{Pause: of})
		})
	case protocol.LimitReset:
		_, err = answered(body, func(of *protocol.LimitOf) (any, error) {
			return nil, h.change(&protocol.News{Reset: of})
		})
	case protocol.LimitInspect:
		out, err = answered(body, func(of *protocol.LimitOf) (driver.State, error) {
			if err := protocol.CheckRates(of.Rates); err != nil {
				return driver.State{}, err
			}
			return h.table.Inspect(of.Key, of.Rates)
		})
	case protocol.LimitList:
		out, err = answered(body, h.list)
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
	if err := protocol.CheckRequest(r); err != nil {
		return driver.Answer{}, err
	}
	c.limits.know(r.Ticket)
	defer h.dropLate(c, r)
	if !h.copied {
		return h.table.Take(r)
	}
	var b batch
	defer b.flush()
	h.mu.Lock()
	defer h.mu.Unlock() // also after a panic, which ends this call alone
	a, err := h.table.Take(r)
	if a.Granted && r.Cost > 0 {
		h.publish(&b, &protocol.News{Take: r, At: a.At})
	}
	return a, err
}

// maxPart bounds a part of a list, in bytes, unless one state is longer.
const maxPart = protocol.MaxFrame / 2

// list returns a list, or the part of it that a client asks for.
func (h *hubLimits) list(of *protocol.LimitOf) ([]json.RawMessage, error) {
	states, err := h.table.List(of.Key)
	if err != nil {
		return nil, err
	}
	all, size := []json.RawMessage{}, 0
	for i := range states {
		if states[i].Key <= of.After {
			continue
		}
		text, err := json.Marshal(&states[i])
		if err != nil {
			return nil, err
		}
		if size += len(text); of.Part && size > maxPart && len(all) > 0 {
			break
		}
		all = append(all, text)
	}
	return all, nil
}

// change makes a change that is decided already.
func (h *hubLimits) change(news *protocol.News) error {
	var b batch
	defer b.flush()
	h.mu.Lock()
	defer h.mu.Unlock()
	news.At = time.UnixMicro(protocol.NodeMicros())
	err := news.Apply(h.table)
	if err == nil && h.copied {
		h.publish(&b, news)
	}
	return err
}

// publish sends a decision to the copies, before the answer to the client that
// has caused it: a grant that a client acts upon counts at the next hub (W1). A copy
// that lacks earlier grants of the key gets all that the table has of it: the next
// hub would take grants of one time in two copies for the same ones. The caller
// holds h.mu.
func (h *hubLimits) publish(b *batch, news *protocol.News) {
	text, err := json.Marshal(news)
	if err != nil {
		return // it was decoded from JSON
	}
	key := news.Key()
	h.forgetText(key)
	for c, copied := range h.copies {
		if news.Reset != nil {
			copied.forgotten(key)
		}
		if _, lacks := copied.behind[key]; lacks && news.Reset == nil { // records do not contain a Reset
			delete(copied.behind, key)
			h.sendRecords(b, c, key)
			continue
		}
		b.send(c, protocol.Begin(protocol.LimitNews).Rest(text))
	}
}

// sendRecords sends c all that the table has of a key. The caller holds h.mu.
func (h *hubLimits) sendRecords(b *batch, c *Client, key string) {
	for _, r := range h.table.RecordsOf(key) {
		if f, err := protocol.AddJSON(protocol.Begin(protocol.LimitRecord), r); err == nil { // as in sendPart
			b.sendCopy(c, f)
		}
	}
}

// leave takes the tickets of a client that has gone out of the queues (W7).
func (h *hubLimits) leave(c *Client) {
	h.forget(c)
	for _, ticket := range c.limits.leave() {
		h.table.Drop(ticket)
	}
}

// dropLate drops the ticket of a call that was under way when its client left.
func (h *hubLimits) dropLate(c *Client, r *driver.Request) {
	if r.Ticket != "" && c.limits.hasLeft() {
		h.table.Drop(r.Ticket)
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

func (t *clientLimits) hasLeft() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left
}

// leave returns the tickets that were known until now.
func (t *clientLimits) leave() (tickets []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = true
	for ticket := range t.tickets {
		tickets = append(tickets, ticket)
	}
	return tickets
}
