package hub

import (
	"fmt"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// begin starts a run of the client, if it is due.
func (h *hubLocks) begin(c *Client, d *protocol.Decoder) error {
	number := d.Uint()
	var g driver.Grant
	var err error
	if g.Key, g.Token, err = protocol.ReadName(d); err != nil {
		return err
	}
	g.Fence = d.Uint()
	every, spend := time.Duration(d.Int()), d.Bool()
	if err := protocol.CheckEvery(every); err != nil {
		return err
	}
	run, r, err := h.table.Begin(&g, every, spend)
	h.publish(r)
	f := protocol.Begin(protocol.LockAnswer).Uint(number)
	if err != nil {
		c.send(protocol.AddFailure(f, err))
		return nil
	}
	c.send(protocol.AddRun(f.Byte(protocol.VerdictDone), &run))
	return nil
}

// end ends a run of the client.
func (h *hubLocks) end(c *Client, d *protocol.Decoder) error {
	number := d.Uint()
	var g driver.Grant
	var err error
	if g.Key, g.Token, err = protocol.ReadName(d); err != nil {
		return err
	}
	run, err := protocol.ReadRun(d)
	if err != nil {
		return err
	}
	r, err := h.table.End(&g, &run)
	h.publish(r)
	h.done(c, number, err)
	return nil
}

// rest releases a grant of the client whose key stays taken.
func (h *hubLocks) rest(c *Client, d *protocol.Decoder) error {
	number := d.Uint()
	var g driver.Grant
	var err error
	if g.Key, g.Token, err = protocol.ReadName(d); err != nil {
		return err
	}
	g.Rest, g.Rev = time.Duration(d.Int()), d.Uint()
	if err := protocol.CheckTTL(g.Rest); err != nil {
		return err
	}
	h.done(c, number, h.table.Rest(&g))
	return nil
}

// run records a run of an earlier hub, which usually all clients report.
func (h *hubLocks) run(d *protocol.Decoder) error {
	r, err := protocol.ReadRecord(d)
	if err != nil {
		return fmt.Errorf("a run: %w", err)
	}
	if h.table.RestoreRun(&r) {
		h.publish(&r)
	}
	return nil
}

// publish sends a record, unless it is nil, to all clients, before the answer to
// the client that has caused it: a tick that is spent stays so as long as any
// process lives.
func (h *hubLocks) publish(r *table.Record) {
	if r == nil {
		return
	}
	var b batch
	for _, c := range h.hub.list() {
		if c.knowsRecords.Load() {
			b.send(c, protocol.AddRecord(protocol.Begin(protocol.LockRan), r))
		}
	}
	b.flush()
}

// introduce sends all records to a new client.
func (h *hubLocks) introduce(c *Client) {
	c.knowsRecords.Store(true)
	for _, r := range h.table.Runs() {
		c.batch.sendCopy(c, protocol.AddRecord(protocol.Begin(protocol.LockRan), &r))
	}
}

// remind sends the record of a run in progress again, before the state of its
// key: the client's copy expires after two intervals, because a copy does not
// know how long the grant of the run is live.
func (h *hubLocks) remind(c *Client, s *driver.State) {
	if s.LastRun == nil || s.LastRun.Outcome != "" || !c.knowsRecords.Load() {
		return
	}
	if r := h.table.Run(s.Key); r != nil {
		c.send(protocol.AddRecord(protocol.Begin(protocol.LockRan), r))
	}
}
