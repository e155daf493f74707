package boxes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Figures counts what a log has.
type Figures struct {
	Prepared  int            // Inits that have ended
	Dirty     map[string]int // slots that were given dirty, by Left.Why
	Residents int            // processes that outlived their holder, until the next Cleanup
	Losers    int            // holders that noticed the loss of their slot
	// Late counts the steps of holders that stood still until their lease was
	// over. Such a step can disturb the next holder; no lock can prevent that.
	Late int
}

func (f Figures) String() string {
	var dirty []string
	for _, why := range slices.Sorted(maps.Keys(f.Dirty)) {
		dirty = append(dirty, fmt.Sprintf("%d %s", f.Dirty[why], why))
	}
	return fmt.Sprintf("%d Inits; dirty slots: %s; %d residents outlived their holders; %d holders lost their slots; %d late steps",
		f.Prepared, strings.Join(dirty, ", "), f.Residents, f.Losers, f.Late)
}

// Judge checks the log of the boxes in the folder dir:
//
//   - Init begins only after a Cleanup of the same slot that nothing followed
//     (P4). So two Inits of a slot are never in progress at once.
//   - A box is empty when Init begins, and no resident lives in it.
//   - A holder that has lost its slot neither cleans nor prepares it (P3): not
//     after it knows of the loss, however late, and not after its successor has
//     begun.
func Judge(dir string) (Figures, error) {
	events, err := read(dir)
	if err != nil {
		return Figures{}, err
	}
	return judge(events)
}

func judge(events []event) (Figures, error) {
	j := judgement{boxes: map[int]*boxState{}, lost: map[lease]bool{}, figures: Figures{Dirty: map[string]int{}}}
	for _, e := range events {
		j.add(e)
	}
	return j.figures, errors.Join(j.wrong...)
}

type judgement struct {
	boxes   map[int]*boxState
	lost    map[lease]bool
	figures Figures
	wrong   []error
}

type lease struct {
	slot  int
	fence uint64
}

// boxState is the state of one slot.
type boxState struct {
	fence     uint64 // the highest that has begun a step
	clean     bool   // nothing has followed the last Cleanup
	last      event
	disturbed bool // by a late step, until the next Cleanup
}

func (j *judgement) add(e event) {
	b := j.boxes[e.Slot]
	if b == nil {
		b = &boxState{}
		j.boxes[e.Slot] = b
	}
	if e.Late {
		if (e.Step == cleaning || e.Step == preparing) && j.lost[lease{e.Slot, e.Fence}] {
			j.wrong = append(j.wrong, fmt.Errorf("a late step of a holder that knew of its loss:\n  %v", e))
		}
		j.figures.Late++
		b.disturbed = true
		return
	}
	if e.Step == lost {
		j.figures.Losers++
		j.lost[lease{e.Slot, e.Fence}] = true
		return
	}
	j.step(b, e)
	b.last = e
}

func (j *judgement) step(b *boxState, e event) {
	switch e.Step {
	case cleaning:
		j.begin(b, e)
		b.clean = false
	case evicted:
		j.figures.Residents++
	case cleaned:
		if e.Err == "" && e.Fence == b.fence {
			b.clean, b.disturbed = true, false
		}
	case preparing:
		j.begin(b, e)
		if !b.clean {
			j.complain(b, e, "Init before Cleanup")
		}
		b.clean = false
	case prepared:
		j.figures.Prepared++
		if e.Err != "" {
			j.complain(b, e, "the box was in use")
		}
	}
}

// begin checks that e is a step of the slot's holder.
func (j *judgement) begin(b *boxState, e event) {
	switch {
	case e.Fence < b.fence || j.lost[lease{e.Slot, e.Fence}]:
		j.complain(b, e, "a step of a holder that had lost its slot")
	case e.Fence > b.fence:
		b.fence = e.Fence
		if e.Left != "" {
			j.figures.Dirty[e.Left]++
		}
	}
}

func (j *judgement) complain(b *boxState, e event, text string) {
	if !b.disturbed {
		j.wrong = append(j.wrong, fmt.Errorf("%s:\n  %v\n  after %v", text, e, b.last))
	}
}
