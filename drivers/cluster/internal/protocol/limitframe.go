package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/internal/windows"
	"github.com/megaframework/mega/limit/driver"
)

// Limits use calls by name: each operation of limit/driver is a call with JSON
// in both directions. A hub of an earlier build answers them with an error.
const (
	LimitCalls    = "limit:"         // begins the name of each of them
	LimitTake     = "limit:take"     // driver.Request -> driver.Answer
	LimitWithdraw = "limit:withdraw" // driver.Request
	LimitSettle   = "limit:settle"   // driver.Settlement
	LimitPause    = "limit:pause"    // LimitOf
	LimitReset    = "limit:reset"    // LimitOf
	LimitInspect  = "limit:inspect"  // LimitOf -> driver.State
	LimitList     = "limit:list"     // LimitOf, whose Key is the prefix -> []driver.State, sorted by key
)

// The frames about limits. Their body is JSON. At a socket, every client has a
// copy of the grants, and reports it to the next hub.
const (
	LimitNews   = TypeLimits + iota // News: what the hub has decided, for the copies
	LimitRecord                     // windows.Record: the state of a key, for a new client or a new hub

	// The records of a client follow its leases, from LimitReporting to
	// LimitReported. A client of an earlier build sends them before LockReported.
	LimitReporting
	LimitReported

	// A call needs one key of a report that has not ended: the client sends its
	// records before the others. A client of an earlier build ignores the question.
	LimitWanted // the key: the hub's question
	LimitGiven  // the key: the client's answer, after the records
)

// LimitOf is the key that an operation is about, with its arguments.
type LimitOf struct {
	Key   string        `json:"key"`
	Rates []driver.Rate `json:"rates,omitempty"`
	Pause driver.Pause  `json:"pause,omitzero"`
	// Part asks for the part of a list that fits into a frame, from the first key
	// after After on. A hub of an earlier build ignores both.
	Part  bool   `json:"part,omitempty"`
	After string `json:"after,omitempty"`
}

// News is one decision about limits. Exactly one of its operations is set. At is
// the time of the decision; hubs of earlier builds give only those of grants.
type News struct {
	Take     *driver.Request    `json:"take,omitempty"` // was granted
	At       time.Time          `json:"at,omitzero"`
	Withdraw *driver.Request    `json:"withdraw,omitempty"`
	Settle   *driver.Settlement `json:"settle,omitempty"`
	Pause    *LimitOf           `json:"pause,omitempty"`
	Reset    *LimitOf           `json:"reset,omitempty"`
}

// Key returns the key that the decision is about.
func (n *News) Key() string {
	switch {
	case n.Take != nil:
		return n.Take.Key
	case n.Withdraw != nil:
		return n.Withdraw.Key
	case n.Settle != nil:
		return n.Settle.Key
	case n.Pause != nil:
		return n.Pause.Key
	case n.Reset != nil:
		return n.Reset.Key
	}
	return ""
}

// Apply does to a table, or to a copy of it, what the hub has decided. Tables to
// which the same decisions are applied in the same order have the same grants.
func (n *News) Apply(t *windows.Table) error {
	at := n.At
	if at.IsZero() {
		at = time.UnixMicro(NodeMicros())
	}
	switch {
	case n.Take != nil:
		if err := CheckRequest(n.Take); err != nil {
			return err
		}
		return t.Learn(n.Take, at)
	case n.Withdraw != nil:
		return t.Withdraw(n.Withdraw)
	case n.Settle != nil:
		if err := checkSettlement(n.Settle); err != nil {
			return err
		}
		return t.SettleAt(n.Settle, at)
	case n.Pause != nil:
		return t.PauseAt(n.Pause.Key, n.Pause.Pause, at)
	case n.Reset != nil && n.At.IsZero(): // every copy would give it another time
		return t.Reset(n.Reset.Key)
	case n.Reset != nil:
		return t.ResetAt(n.Reset.Key, at)
	}
	return nil
}

// AddJSON adds v as JSON, which must be the end of the frame.
func AddJSON(f *Frame, v any) (*Frame, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return f.Rest(text), nil
}

// ReadJSON reads a value that AddJSON has written.
func ReadJSON(d *Decoder, v any) error {
	if err := json.Unmarshal(d.Rest(), v); err != nil {
		return fmt.Errorf("decode a limit: %w", err)
	}
	return nil
}

// CheckRates refuses rates with which a table cannot count.
func CheckRates(rates []driver.Rate) error {
	if len(rates) > driver.MaxRates {
		return fmt.Errorf("%d rates", len(rates))
	}
	for _, r := range rates {
		if r.N < 1 || r.N > driver.MaxN || r.Per < time.Microsecond || r.Per > maxPer {
			return fmt.Errorf("a rate of %d per %v", r.N, r.Per)
		}
	}
	return nil
}

// maxPer bounds the length of an interval: the front adds a slack to it.
const maxPer = 2 * driver.MaxPer

// CheckRequest refuses a request with which a table cannot count.
func CheckRequest(r *driver.Request) error {
	return errors.Join(CheckRates(r.Rates), checkUnits(r.Cost))
}

// checkSettlement refuses a settlement with which a table cannot count.
func checkSettlement(s *driver.Settlement) error {
	return errors.Join(CheckRates(s.Rates), checkUnits(s.Cost), checkUnits(s.Actual))
}

func checkUnits(n int) error {
	if n < 0 || n > driver.MaxN {
		return fmt.Errorf("%d units", n)
	}
	return nil
}

// The bounds of the numbers in a record. A table adds up the units of a log, and adds
// Per to its times. The grants of one record cannot overflow the sum: a frame has room for
// fewer than 1 << 16. Records that are merged stay within the bounds.
const (
	maxUnits = 1 << 47 // of one time
	maxAt    = 1 << 60 // microseconds
)

// CheckLimitRecord refuses a record with which a table cannot count.
func CheckLimitRecord(r *windows.Record) error {
	if len(r.Logs) > driver.MaxRates*4 {
		return fmt.Errorf("%d logs", len(r.Logs))
	}
	for _, l := range r.Logs {
		last := int64(0)
		for _, m := range l.Grants {
			if !isUnits(m.Units) || m.At < last || m.At > maxAt {
				return fmt.Errorf("a grant of %d units at %d", m.Units, m.At)
			}
			last = m.At
		}
		for _, m := range l.Returned {
			if !isUnits(m.Units) || m.At < 0 || m.At > maxAt {
				return fmt.Errorf("%d returned units at %d", m.Units, m.At)
			}
		}
		if l.Per < 1 || l.Per > maxPer.Microseconds() || l.N < 1 || l.N > driver.MaxN || l.Last > maxAt {
			return fmt.Errorf("a log of %d per %d µs until %d", l.N, l.Per, l.Last)
		}
	}
	return nil
}

func isUnits(n int64) bool { return 1 <= n && n <= maxUnits }
