package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// The frames about the slots of pools. A hub of an earlier build ignores them:
// the question then ends with its timeout. Fields of pools stand at the end of
// other frames, where an earlier build does not read them.
const (
	LockHandback = TypeLocks + 0x0d // number, key, token, handback: releases a slot
	LockHeal     = TypeLocks + 0x0f // number, key, slot, holder
)

// The verdicts about pools follow those about all locks.
const (
	verdictWithdrawn Verdict = 0x20 + iota // every slot is withdrawn; the size before
	verdictSize                            // size, asked size
)

// maxText bounds the texts of the record of a slot.
const maxText = 4 << 10

// addPool adds the pool fields of a request. A request without them adds nothing.
func addPool(f *Frame, r *driver.Request) {
	if r.Pool == nil && !r.Fixed {
		return
	}
	f.Bool(r.Fixed).Bool(r.Pool != nil)
	if p := r.Pool; p != nil {
		f.Int(int64(p.Quarantine)).Int(int64(p.Prefer)).Int(int64(p.Avoid))
	}
}

func readPool(d *Decoder, r *driver.Request) error {
	if d.Left() == 0 {
		return nil
	}
	r.Fixed = d.Bool()
	if !d.Bool() {
		return d.Err()
	}
	r.Pool = &driver.Pool{Quarantine: time.Duration(d.Int()), Prefer: int(d.Int()), Avoid: int(d.Int())}
	if q := r.Pool.Quarantine; q < 0 || q > maxTTL {
		return fmt.Errorf("a slot that rests for %v", q)
	}
	return d.Err()
}

// addFound adds the state in which a grant found its slot, if there is one.
func addFound(f *Frame, g *driver.Grant) {
	if g.Found == nil {
		return
	}
	addLeaving(f, g.Found.Left)
	f.String(g.Found.Note).Uint(uint64(g.Found.Strikes))
}

func readFound(d *Decoder, g *driver.Grant) {
	if d.Left() > 0 {
		g.Found = &driver.Found{Left: readLeaving(d), Note: d.String(), Strikes: int(d.Uint())}
	}
}

func addLeaving(f *Frame, l *driver.Leaving) {
	f.Bool(l != nil)
	if l != nil {
		AddHolder(f.String(l.Why).Int(l.At.UnixMicro()), &l.By)
	}
}

func readLeaving(d *Decoder) *driver.Leaving {
	if !d.Bool() {
		return nil
	}
	l := &driver.Leaving{Why: d.String(), At: time.UnixMicro(d.Int())}
	l.By = ReadHolder(d, &driver.Holder{})
	return l
}

// AddHandback adds what becomes of a slot.
func AddHandback(f *Frame, h *driver.Handback) *Frame {
	f.String(string(h.Status)).String(cut(h.Reason)).String(h.Note).Uint(uint64(h.Strikes))
	addLeaving(f, h.Left)
	return f
}

// ReadHandback reads a value that AddHandback has written.
func ReadHandback(d *Decoder) (*driver.Handback, error) {
	h := &driver.Handback{Status: driver.SlotStatus(d.String()), Reason: d.String(), Note: d.String(), Strikes: int(d.Uint())}
	h.Left = readLeaving(d)
	if err := d.Err(); err != nil {
		return nil, err
	}
	if len(h.Status) > maxToken || len(h.Reason) > maxText || len(h.Note) > maxText || h.Strikes < 0 {
		return nil, fmt.Errorf("a slot with a reason of %d bytes and a note of %d", len(h.Reason), len(h.Note))
	}
	if h.Left == nil {
		return h, nil
	}
	if len(h.Left.Why) > maxToken {
		return nil, fmt.Errorf("the reason for leaving a slot has %d bytes", len(h.Left.Why))
	}
	return h, CheckHolder(&h.Left.By)
}

// CheckSlot checks the number of a slot.
func CheckSlot(slot uint64) error {
	if slot >= maxSlots {
		return fmt.Errorf("the slot %d", slot)
	}
	return nil
}

// addPoolError adds an error about a pool, and reports whether err is one.
func addPoolError(f *Frame, err error) bool {
	if busy, ok := errors.AsType[*driver.NotAcquiredError](err); ok && busy.Withdrawn {
		f.Byte(verdictWithdrawn).Uint(uint64(busy.Resized))
		return true
	}
	if size, ok := errors.AsType[*driver.PoolSizeError](err); ok {
		f.Byte(verdictSize).Uint(uint64(size.Size)).Uint(uint64(size.Asked))
		return true
	}
	return false
}

// readPoolError reads an error that addPoolError has written, or returns nil.
func readPoolError(o Verdict, d *Decoder, key string) error {
	switch o {
	case verdictWithdrawn:
		busy := &driver.NotAcquiredError{Key: key, Withdrawn: true}
		if d.Left() > 0 { // of an earlier build, it is the 0 that ends an answer
			busy.Resized = int(d.Uint())
		}
		return busy
	case verdictSize:
		return &driver.PoolSizeError{Key: key, Size: int(d.Uint()), Asked: int(d.Uint())}
	}
	return nil
}

func addSlot(f *Frame, s *driver.SlotState) {
	f.Uint(uint64(s.Number)).String(string(s.Status)).String(s.Reason).String(s.Note).Uint(uint64(s.Strikes))
	f.Bool(!s.Until.IsZero())
	if !s.Until.IsZero() {
		f.Int(s.Until.UnixMicro())
	}
	AddHolder(f, &s.LastHolder)
}

func readSlot(d *Decoder) (s driver.SlotState) {
	s.Number, s.Status, s.Reason, s.Note, s.Strikes = int(d.Uint()), driver.SlotStatus(d.String()), d.String(), d.String(), int(d.Uint())
	if d.Bool() {
		s.Until = time.UnixMicro(d.Int())
	}
	s.LastHolder = ReadHolder(d, &driver.Holder{})
	return s
}
