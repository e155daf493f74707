package redis

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

var _ driver.PoolDriver = (*queue)(nil)

// wants is the argument of acquire about slots: the number alone for a plain lock
// or pool.
func wants(r driver.Request) string {
	if r.Pool == nil && !r.Fixed {
		return digits(r.Slots)
	}
	b := strconv.AppendInt(make([]byte, 0, 32), int64(r.Slots), 10)
	if r.Fixed {
		b = append(b, ";1"...)
	} else {
		b = append(b, ";0"...)
	}
	if r.Pool != nil {
		for _, n := range []int64{millis(r.Pool.Quarantine), int64(r.Pool.Prefer), int64(r.Pool.Avoid)} {
			b = strconv.AppendInt(append(b, ';'), n, 10)
		}
	}
	return string(b)
}

// found reads the record of a slot, of which a grant has a copy.
func (c *claim) found(record string) *driver.Found {
	if c.r.Pool == nil {
		return nil
	}
	lines := strings.Split(record, "\n")
	f := &driver.Found{}
	if len(lines) == recordLines && lines[lineWhy] == "" { // clean: nobody is to be named
		f.Strikes, _ = strconv.Atoi(lines[lineStrikes])
		decodePart(lines[lineNote], &f.Note)
		return f
	}
	r := decodeSlot(record)
	f.Note, f.Strikes = r.note, r.strikes
	f.Left = &driver.Leaving{By: r.by, At: r.at, Why: r.why}
	return f
}

// slotRecord is what the backend knows about a slot. slots.lua describes it.
type slotRecord struct {
	strikes      int
	why          string // why it is dirty, or "" if it is clean
	at           time.Time
	by, last     driver.Holder
	note, reason string
}

// The lines of a record.
const (
	lineVersion = iota
	lineToken
	lineStrikes
	lineWhy
	lineAt
	lineBy
	lineLast
	lineNote
	lineReason
	recordLines
)

// decodeSlot reads a record. No record means that nothing is known.
func decodeSlot(s string) slotRecord {
	lines := strings.Split(s, "\n")
	if len(lines) != recordLines || lines[lineVersion] != format {
		return slotRecord{why: driver.LeftUnknown}
	}
	r := slotRecord{why: lines[lineWhy]}
	r.strikes, _ = strconv.Atoi(lines[lineStrikes])
	if ms, err := strconv.ParseInt(lines[lineAt], 10, 64); err == nil {
		r.at = time.UnixMilli(ms)
	}
	r.by, r.last = decodeHolder(strings.Split(lines[lineBy], " ")), decodeHolder(strings.Split(lines[lineLast], " "))
	decodePart(lines[lineNote], &r.note)
	decodePart(lines[lineReason], &r.reason)
	return r
}

// decodePart reads a part of a record. A part that cannot be read stays empty:
// nothing depends on it.
func decodePart(line string, into any) {
	if line != "" {
		_ = json.Unmarshal([]byte(line), into)
	}
}

// slotStates reads number, state, rest and record of each slot.
func slotStates(a answer) []driver.SlotState {
	var out []driver.SlotState
	now := time.Now()
	for i := 0; i+3 < len(a); i += 4 {
		r := decodeSlot(a.text(i + 3))
		s := driver.SlotState{
			Number: int(a.num(i)), Status: driver.SlotStatus(a.text(i + 1)),
			LastHolder: r.last, Note: r.note, Strikes: r.strikes,
		}
		switch s.Status {
		case driver.SlotResting:
			s.Until, s.Reason = now.Add(time.Duration(a.num(i+2))*time.Millisecond), r.why
		case driver.SlotDirty:
			s.Reason = r.why
		case driver.SlotWithdrawn:
			s.Reason = r.reason
		}
		out = append(out, s)
	}
	return out
}

// asItWas is the Handback of a slot that its holder never had in its hands.
const asItWas driver.SlotStatus = "back"

// handback returns the arguments of release about a slot: none if its holder
// hands nothing back. The number of a clean slot is among them for the fast path.
func handback(h *driver.Handback, slot int) []string {
	if h == nil {
		return nil
	}
	if h.Status == driver.SlotFree {
		return []string{string(h.Status), digits(h.Strikes), oneLine(h.Note), "", "", "", "", digits(slot)}
	}
	strikes, why, at, by := digits(h.Strikes), "", "", ""
	if h.Status == driver.SlotDirty {
		if h.Left == nil {
			why, strikes = driver.LeftUnknown, ""
		} else {
			why, by = h.Left.Why, encodeHolder(h.Left.By)
			if !h.Left.At.IsZero() {
				at = digits(h.Left.At.UnixMilli())
			}
		}
	}
	return []string{string(h.Status), strikes, oneLine(h.Note), oneLine(h.Reason), why, at, by}
}

// oneLine returns s as JSON, which has no line breaks, or "" for nothing.
func oneLine(s string) string {
	if s == "" {
		return ""
	}
	b, _ := json.Marshal(s) // fails for no string
	return string(b)
}

// refused returns the error of a request that the state of the pool refuses, or
// the loss of a grant that was forced before its push arrived.
func (c *claim) refused(t tried) error {
	switch t.status {
	case statusWithdrawn:
		return &driver.NotAcquiredError{Key: c.r.Key, Withdrawn: true, Resized: t.resized}
	case statusSize:
		return &driver.PoolSizeError{Key: c.r.Key, Size: t.resized, Asked: c.r.Slots}
	case statusBarred:
		if t.why != "" {
			return lostBy(c.r.Key, t.why)
		}
	}
	return nil
}

// Heal implements [driver.PoolDriver].
func (q *queue) Heal(ctx context.Context, key string, slot int, _ string, by driver.Holder) error {
	if q.closing.Load() {
		return driver.ErrClosed
	}
	o, err := q.run(ctx, q.scripts.heal.on(q.layout.holder(key), newID(), digits(slot), encodeHolder(by)))
	if err != nil {
		return err
	}
	if _, ok := o.reply.(int64); !ok {
		return unavailable(errors.New("heal: unexpected answer"))
	}
	return nil
}
