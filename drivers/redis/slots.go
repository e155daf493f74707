package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

var _ driver.PoolDriver = (*queue)(nil)

// wants is the argument of acquire about slots. The number alone is a plain lock
// or pool; the others keep a request from the short way.
func wants(r driver.Request) any {
	fixed := 0
	if r.Fixed {
		fixed = 1
	}
	switch {
	case r.Pool != nil:
		return fmt.Sprintf("%d;%d;%d;%d;%d", r.Slots, fixed, millis(r.Pool.Quarantine), r.Pool.Prefer, r.Pool.Avoid)
	case r.Fixed:
		return fmt.Sprintf("%d;1", r.Slots)
	}
	return r.Slots
}

// found reads the record of a slot, of which a grant has a copy.
func (c *claim) found(record string) *driver.Found {
	if c.r.Pool == nil {
		return nil
	}
	r := decodeSlot(record)
	f := &driver.Found{Note: r.note, Strikes: r.strikes}
	if r.why != "" {
		f.Left = &driver.Leaving{By: r.by, At: r.at, Why: r.why}
	}
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
	// A part that cannot be read stays empty: nothing depends on it.
	for line, into := range map[int]any{lineBy: &r.by, lineLast: &r.last, lineNote: &r.note, lineReason: &r.reason} {
		if lines[line] != "" {
			_ = json.Unmarshal([]byte(lines[line]), into)
		}
	}
	return r
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
// hands nothing back.
func handback(h *driver.Handback) []any {
	if h == nil {
		return nil
	}
	why, at, by := "", "", ""
	if h.Status == driver.SlotDirty {
		why = driver.LeftUnknown
		if h.Left != nil {
			why, by = h.Left.Why, oneLine(h.Left.By)
			if !h.Left.At.IsZero() {
				at = strconv.FormatInt(h.Left.At.UnixMilli(), 10)
			}
		}
	}
	return []any{string(h.Status), h.Strikes, oneLine(h.Note), oneLine(h.Reason), why, at, by}
}

// oneLine returns v as JSON, which has no line breaks, or "" for nothing.
func oneLine(v any) string {
	if v == "" {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// refused returns the error of a request that the state of the pool refuses.
func (c *claim) refused(t tried, waited time.Duration) error {
	switch t.status {
	case statusWithdrawn:
		return &driver.NotAcquiredError{Key: c.r.Key, Waited: waited, Withdrawn: true}
	case statusSize:
		return &driver.PoolSizeError{Key: c.r.Key, Size: t.resized, Asked: c.r.Slots}
	}
	return nil
}

// ForceSlot implements [driver.PoolDriver].
func (q *queue) ForceSlot(ctx context.Context, key string, slot int, reason string, by driver.Holder) (int, error) {
	return q.force(ctx, key, strconv.Itoa(slot), reason, by)
}

// Heal implements [driver.PoolDriver].
func (q *queue) Heal(ctx context.Context, key string, slot int, _ string, by driver.Holder) error {
	if q.closing.Load() {
		return driver.ErrClosed
	}
	o, err := q.run(ctx, q.scripts.heal.on(q.layout.holder(key), slot, oneLine(by)))
	if err != nil {
		return err
	}
	if _, ok := o.reply.(int64); !ok {
		return unavailable(errors.New("heal: unexpected answer"))
	}
	return nil
}
