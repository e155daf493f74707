package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/lock"
)

// Overlap is a period, or an instant, in which two clients were sure of the
// same slot.
type Overlap struct {
	Key  string
	A, B Belief // A was granted first
	For  time.Duration
}

func (o Overlap) String() string {
	return fmt.Sprintf("key %q: two holders for %v:\n  %v\n  %v", o.Key, o.For, o.A, o.B)
}

// Overlaps returns the overlaps of beliefs, the longest first.
func (h History) Overlaps() []Overlap {
	var found []Overlap
	for _, beliefs := range h.bySlot() {
		found = append(found, overlaps(beliefs)...)
	}
	slices.SortFunc(found, func(a, b Overlap) int { return cmp.Compare(b.For, a.For) })
	return found
}

// overlaps compares each belief with the earlier belief that lasted longest.
func overlaps(beliefs []Belief) (found []Overlap) {
	var last Belief
	for i, b := range beliefs {
		if until := min(last.To, b.To); i > 0 && until > b.From {
			found = append(found, Overlap{Key: b.Key, A: last, B: b, For: time.Duration(until - b.From)})
		}
		if i == 0 || b.To > last.To {
			last = b
		}
	}
	return found
}

// bySlot returns the beliefs of each slot of each key, in the order of their
// start.
func (h History) bySlot() map[string][]Belief {
	slots := map[string][]Belief{}
	for _, b := range h.Beliefs {
		if b.To > b.From { // otherwise it was over before the client knew
			slot := fmt.Sprintf("%d %s", b.Slot, b.Key)
			slots[slot] = append(slots[slot], b)
		}
	}
	for _, beliefs := range slots {
		slices.SortFunc(beliefs, func(a, b Belief) int { return cmp.Compare(a.From, b.From) })
	}
	return slots
}

// FenceErrors returns the places where fences did not grow: within a slot in
// the order of the beliefs, and within a key if one grant was known before the
// next was requested.
//
// The grant of a pool may be older than the call that returns it: the driver made
// it for an earlier caller of the same process, who had left. Other slots may have
// been granted in between, with higher fences. Such a grant is recognised by its
// deadline, and is compared within its slot only.
//
// Within allowed after a grant, its slot may show a lower fence: a process that
// has not noticed the loss of its lease may hand the lease on to its own waiter.
func (h History) FenceErrors(allowed time.Duration) []string {
	var found []string
	for _, beliefs := range h.bySlot() {
		found = append(found, fell(beliefs, allowed)...)
	}
	for _, grants := range h.grants() {
		found = append(found, fallen(grants)...)
	}
	return found
}

// fell compares each belief with the earlier belief that has the highest fence.
func fell(beliefs []Belief, allowed time.Duration) (found []string) {
	var highest Belief
	for i, b := range beliefs {
		if i > 0 && b.Fence <= highest.Fence {
			if late := time.Duration(b.From - highest.From); late >= allowed || b.Fence == highest.Fence {
				found = append(found, fmt.Sprintf("key %q: the fence fell or stayed:\n  %v\n  %v", b.Key, highest, b))
			}
			continue
		}
		highest = b
	}
	return found
}

func (h History) grants() map[string][]Op {
	keys := map[string][]Op{}
	for _, op := range h.Ops {
		if op.Kind == Acquire && op.Outcome == OK {
			keys[op.Key] = append(keys[op.Key], op)
		}
	}
	return keys
}

// fallen returns the grants whose fence is not above the fence of every grant
// that was known before their request.
func fallen(grants []Op) (found []string) {
	asked, known := slices.Clone(grants), slices.Clone(grants)
	slices.SortFunc(asked, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(known, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	var highest Op
	for _, op := range asked {
		for len(known) > 0 && known[0].Return < op.Call {
			if known[0].Fence > highest.Fence {
				highest = known[0]
			}
			known = known[1:]
		}
		if op.Fence <= highest.Fence && !op.isOlder(highest) {
			found = append(found, fmt.Sprintf("key %q: a later grant has no higher fence:\n  %v\n  %v", op.Key, highest, op))
		}
	}
	return found
}

// isOlder reports whether op's grant was made before other, the grant of another
// slot, or at the same instant, by their deadlines.
func (o Op) isOlder(other Op) bool {
	return o.Slots > 1 && o.Slot != other.Slot && o.Deadline < other.Deadline+int64(atOnce)
}

// atOnce is the difference below which two deadlines count as equal: a hub that takes
// over serves all waiters at one instant, and each process reads its clock for itself.
const atOnce = time.Millisecond

// CleanErrors returns the grants of slots with a state that were found clean
// although the last known holder of the slot had not handed it back clean. It
// needs no search, and so no bound, and sees less than CheckServer.
func (h History) CleanErrors() []string {
	releases := map[string]Op{}
	for _, op := range h.Ops {
		if op.Kind == Release {
			releases[op.Token] = op
		}
	}
	slots := map[string][]Op{}
	for key, grants := range h.grants() {
		for _, op := range grants {
			if op.Found != "" {
				slot := fmt.Sprintf("%d %s", op.Slot, key)
				slots[slot] = append(slots[slot], op)
			}
		}
	}
	var found []string
	for _, grants := range slots {
		slices.SortFunc(grants, func(a, b Op) int { return cmp.Compare(a.Fence, b.Fence) })
		for i, op := range grants[1:] { // the first may follow one that was not recorded
			if back := releases[grants[i].Token]; op.Found == Clean && !back.mayBeClean() {
				how := "no release"
				if back.Kind == Release {
					how = back.String()
				}
				found = append(found, fmt.Sprintf("key %q: a slot that was not handed back is clean:\n  %v\n  %s\n  %v", op.Key, grants[i], how, op))
			}
		}
	}
	return found
}

// mayBeClean reports whether the release may have handed its slot back clean: not
// if the server refused it, but if the holder's own clock did.
func (o Op) mayBeClean() bool {
	return o.Handback == lock.SlotFree && (o.Outcome != Lost || o.Deadline != 0 && o.Return >= o.Deadline)
}

// CheckBeliefs returns an error that names the places where two clients were
// sure of the same slot for longer than allowed, where fences did not grow (see
// FenceErrors), or where a slot was clean that nobody had cleaned (see
// CleanErrors).
//
// allowed is 0 under partitions, delays, pauses and stalled renewals. After a
// force, a flush or a failover that lost leases, it is one renewal period,
// because the holder learns of the loss with its next renewal.
func (h History) CheckBeliefs(allowed time.Duration) error {
	found := slices.Concat(h.FenceErrors(allowed), h.CleanErrors())
	for _, o := range h.Overlaps() {
		if o.For > allowed {
			found = append(found, o.String())
		}
	}
	return complaint(found)
}

// LongestOverlap returns the longest time in which two clients were sure of the
// same slot, or 0.
func (h History) LongestOverlap() time.Duration {
	if o := h.Overlaps(); len(o) > 0 {
		return o[0].For
	}
	return 0
}

// complaint returns an error with the first few findings.
func complaint(found []string) error {
	const shown = 5
	if len(found) == 0 {
		return nil
	}
	text := strings.Join(found[:min(len(found), shown)], "\n")
	if more := len(found) - shown; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return errors.New(text)
}
