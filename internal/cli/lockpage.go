package cli

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/lock"
)

// printListed writes the locks of each source as a table.
func printListed(w io.Writer, all []listed) {
	for i, l := range all {
		if !l.begin(w, i) {
			continue
		}
		if l.Total == 0 {
			fmt.Fprintln(w, shell.NoLock)
			continue
		}
		var rows []shell.Row
		for _, e := range l.Locks {
			rows = append(rows, shell.Row{State: e.State, Waiting: e.Waiting})
		}
		shell.PrintLocks(w, rows)
		if l.Truncated {
			fmt.Fprintf(w, "  %d of %d: --limit shows more, a prefix selects fewer\n", len(l.Locks), l.Total)
		}
	}
}

// printShown writes the holders and waiters of a lock, for each source.
func printShown(w io.Writer, all []shown) {
	for i, s := range all {
		if s.begin(w, i) {
			printState(w, s.State, s.Waiting)
		}
	}
}

func printState(w io.Writer, s lock.State, waiting int) {
	if s.Skipped != "" {
		fmt.Fprintf(w, "  this is not a lock: %s\n", plain.Line(s.Skipped))
		return
	}
	if s.LastRun != nil {
		fmt.Fprintln(w, "  last run: "+plain.Line(runText(s.LastRun)))
	}
	if len(s.Holders)+waiting == 0 {
		fmt.Fprintln(w, "  no holder and no waiters")
		printSlots(w, s)
		return
	}
	t := plain.Table{Indent: "  "}
	t.Add("", "WHO", "AGE", "LEFT", "FENCE", "REQUEST", "LABEL")
	for _, h := range s.Holders {
		name := "holds"
		if s.Size > 1 {
			name = "holds " + shell.SlotText(s, h)
		}
		t.Add(name, shell.HolderName(h.Holder), shell.Age(h.Holder), plain.Short(h.Left), fmt.Sprint(h.Fence), cmp.Or(h.Request, "-"), h.Label)
	}
	for i, h := range s.Waiters {
		t.Add(fmt.Sprintf("waits %d", i+1), shell.HolderName(h), shell.Age(h), "-", "-", cmp.Or(h.Request, "-"), h.Label)
	}
	t.Print(w)
	if more := waiting - len(s.Waiters); more > 0 {
		fmt.Fprintf(w, "  and %d more waiters\n", more)
	}
	printSlots(w, s)
}

// printSlots writes the number of free slots of a pool, and the slots that are
// neither free nor held.
func printSlots(w io.Writer, s lock.State) {
	if s.Size < 2 && s.Slots == nil {
		return
	}
	n := s.Tally() // as in lock ls: a dirty slot is not free
	fmt.Fprintf(w, "  %d of %d free", n.Free, n.Size)
	if n.Dirty > 0 {
		fmt.Fprintf(w, ", %d dirty", n.Dirty)
	}
	fmt.Fprintln(w)
	for _, slot := range s.Slots {
		if slot.Status == lock.SlotFree || slot.Status == lock.SlotHeld || slot.Reason == lock.LeftUnknown {
			continue
		}
		line := fmt.Sprintf("slot %d is %s: %s", slot.Number, slot.Status, slot.Reason)
		if !slot.Until.IsZero() {
			line += ", for " + plain.Short(max(0, time.Until(slot.Until)))
		}
		fmt.Fprintln(w, "  "+plain.Line(line))
	}
}

// printHealed writes the result of the healing of a slot.
func printHealed(w io.Writer, key string, slot int, all []healed) {
	for _, h := range all {
		switch {
		case h.Error != "":
		case h.Healed:
			fmt.Fprintf(w, "%s: slot %d is in circulation  (%s)\n", plain.Line(key), slot, h.short())
		default:
			fmt.Fprintf(w, "%s: %s  (%s)\n", plain.Line(key), h.Why, h.short())
		}
	}
}

// runText returns the last run of a key as one line.
func runText(r *lock.Run) string {
	if r.Skipped != "" {
		return "unknown: " + r.Skipped
	}
	outcome := "in progress, or its process has ended"
	if r.Outcome != "" {
		outcome = fmt.Sprintf("%s after %s", r.Outcome, plain.Short(r.End.Sub(r.Start)))
	}
	return fmt.Sprintf("%s, by %s, every %s, %s", r.Start.UTC().Format(time.RFC3339), shell.HolderName(r.By), plain.Exact(r.Every), outcome)
}

// printReleased writes the result of a forced release of a key.
func printReleased(w io.Writer, key string, only admin.Only, all []released) {
	for _, r := range all {
		switch {
		case r.Error != "":
		case r.Released == 0 && only.Fence != nil:
			fmt.Fprintf(w, "%s: no holder with fence %d  (%s)\n", plain.Line(key), *only.Fence, r.short())
		case r.Released == 0:
			fmt.Fprintf(w, "%s: no holder  (%s)\n", plain.Line(key), r.short())
		default:
			fmt.Fprintf(w, "%s: released from %s  (%s)\n", plain.Line(key), count(r.Released, "holder"), r.short())
		}
	}
}

// count returns a number with its noun, in the plural if n is not 1.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// short returns the process or server as a phrase.
func (a about) short() string { return plain.Line(a.place()) }
