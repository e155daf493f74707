package hub

import (
	"cmp"
	"fmt"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

// handback releases a slot of the client, with what becomes of it.
func (h *hubLocks) handback(c *Client, d *protocol.Decoder) error {
	number := d.Uint()
	key, token, err := protocol.ReadName(d)
	if err != nil {
		return err
	}
	back, err := protocol.ReadHandback(d)
	if err != nil {
		return err
	}
	h.done(c, number, h.table.Release(&driver.Grant{Key: key, Token: token, Handback: back}))
	return nil
}

// forceSlot ends the lease of one slot.
func (h *hubLocks) forceSlot(c *Client, d *protocol.Decoder) error {
	number, key, slot, reason := d.Uint(), d.String(), d.Uint(), d.String()
	if len(reason) > protocol.MaxReason {
		return fmt.Errorf("a reason of %d bytes", len(reason))
	}
	by, err := readOperator(c, d, slot)
	if err != nil {
		return err
	}
	_, err = h.table.Force(key, int(slot), reason, by, func(n int) {
		c.send(protocol.Begin(protocol.LockAnswer).Uint(number).Byte(protocol.VerdictDone).Uint(uint64(n)))
		c.batch.flush()
	})
	if err != nil {
		c.send(protocol.AddFailure(protocol.Begin(protocol.LockAnswer).Uint(number), err))
	}
	return nil
}

// readOperator reads who asks for a change of the slot, and checks both.
func readOperator(c *Client, d *protocol.Decoder, slot uint64) (driver.Holder, error) {
	by := protocol.ReadHolder(d, &c.locks.holder)
	return by, cmp.Or(d.Err(), protocol.CheckSlot(slot), protocol.CheckHolder(&by))
}

// heal puts a slot back into circulation.
func (h *hubLocks) heal(c *Client, d *protocol.Decoder) error {
	number, key, slot := d.Uint(), d.String(), d.Uint()
	by, err := readOperator(c, d, slot)
	if err != nil {
		return err
	}
	h.done(c, number, h.table.Heal(key, int(slot), by))
	return nil
}

// done answers a question whose answer has no content, unless its number is 0.
func (h *hubLocks) done(c *Client, number uint64, err error) {
	if number == 0 {
		return
	}
	f := protocol.Begin(protocol.LockAnswer).Uint(number)
	if err != nil {
		protocol.AddFailure(f, err)
	} else {
		f.Byte(protocol.VerdictDone)
	}
	c.send(f)
}
