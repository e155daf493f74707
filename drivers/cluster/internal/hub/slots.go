package hub

import (
	"cmp"

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

// heal puts a slot back into circulation.
func (h *hubLocks) heal(c *Client, d *protocol.Decoder) error {
	number, key, slot := d.Uint(), d.String(), d.Uint()
	by := protocol.ReadHolder(d, &c.locks.holder)
	if err := cmp.Or(d.Err(), protocol.CheckSlot(slot), protocol.CheckHolder(&by)); err != nil {
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
