package shell

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/lock"
)

// Row is a lock of a table, with the number of its waiters.
type Row struct {
	lock.State
	Waiting int
}

// NoLock is the line of a list without locks.
const NoLock = "  no lock is held"

// PrintLocks writes locks as a table, with a row for each holder, and pools as another
// one, with the number of their slots by status. A key with waiters only also has one
// row; a pool without holders and waiters is in the second table alone. Without locks
// it writes nothing.
func PrintLocks(w io.Writer, locks []Row) {
	holders, pools := plain.Table{Indent: "  "}, plain.Table{Indent: "  "}
	holders.Add("KEY", "SLOT", "HOLDER", "AGE", "LEFT", "WAITING", "LABEL")
	pools.Add("POOL", "SIZE", "HELD", "FREE", "DIRTY", "RESTING", "WITHDRAWN")
	for _, l := range locks {
		if !l.IsPool() || len(l.Holders)+l.Waiting > 0 {
			l.add(&holders)
		}
		if l.IsPool() {
			p := l.Tally()
			pools.Add(l.Key, fmt.Sprint(p.Size), fmt.Sprint(p.Held), fmt.Sprint(p.Free), fmt.Sprint(p.Dirty), fmt.Sprint(p.Resting), fmt.Sprint(p.Withdrawn))
		}
	}
	for _, t := range []plain.Table{holders, pools} {
		if len(t.Rows) > 1 {
			t.Print(w)
		}
	}
}

func (l Row) add(t *plain.Table) {
	if l.Skipped != "" {
		t.Add(l.Key, "-", "unreadable: "+l.Skipped, "-", "-", "-", "")
		return
	}
	if len(l.Holders) == 0 {
		t.Add(l.Key, "-", "-", "-", "-", fmt.Sprint(l.Waiting), "")
	}
	for i, h := range l.Holders {
		key, waits := l.Key, fmt.Sprint(l.Waiting)
		if i > 0 {
			key, waits = "", ""
		}
		t.Add(key, SlotText(l.State, h), HolderName(h.Holder), Age(h.Holder), plain.Short(h.Left), waits, h.Label)
	}
}

// SlotText returns the slot of a holder as tables show it.
func SlotText(s lock.State, h lock.Holding) string {
	if s.Size == 1 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", h.Slot, s.Size)
}

// HolderName returns a holder as one word: app@host:pid, with its worker.
func HolderName(h lock.Holder) string {
	s := fmt.Sprintf("%s:%d", cmp.Or(h.Host, "?"), h.PID)
	if h.App != "" {
		s = h.App + "@" + s
	}
	if h.Worker != 0 {
		s += fmt.Sprintf(" worker %d", h.Worker)
	}
	return s
}

// Age returns the time since h requested the lock as tables show it.
func Age(h lock.Holder) string {
	if h.Since.IsZero() {
		return "-"
	}
	return plain.Short(max(0, time.Since(h.Since)))
}
