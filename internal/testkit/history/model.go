package history

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/megaframework/mega/lock"
)

// The model is a lock server that executes one operation at a time. It needs no
// clock: an operation took effect at some instant before its return. So a lease
// may have expired for an operation that returned after the lease's deadline,
// and cannot have expired for one that returned before.

// input is an operation with related facts from the rest of the history.
type input struct {
	Op
	// contended reports whether other acquires of the key were in progress. One
	// of them may have been granted and released again without a record.
	contended bool
}

// held is a lease in the server's state.
type held struct {
	token string
	fence uint64
	slot  int
	until int64 // it cannot have expired before
	// doubtful reports that the lease may already be gone: its holder was told
	// so, or the server may have forgotten it.
	doubtful bool
	// cleaned reports that the slot may be clean when the lease is gone: the
	// holder's clock was over while it handed the slot back.
	cleaned bool
}

// slot is the record of a slot with a state. While the slot is held, it is the
// record that a loss of the slot leaves. The zero value is dirty.
type slot struct {
	status lock.SlotStatus // SlotFree is clean, SlotWithdrawn; empty is dirty
	// doubtful reports that the slot may be dirty instead.
	doubtful bool
	fence    uint64 // the highest that was granted
}

// state is the server's state of one key.
type state struct {
	leases []held // by slot
	slots  []slot // by number, as far as they were used
	fence  uint64 // the highest that was granted
	// ghost reports that unknown leases may exist from now on: the outcome of
	// an acquire was lost.
	ghost bool
}

// model returns the server as a porcupine model.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: byKey,
		Init:      func() any { return state{} },
		Step: func(s, in, _ any) (bool, any) {
			return s.(state).step(in.(input))
		},
		Equal:             func(a, b any) bool { return a.(state).equal(b.(state)) },
		Hash:              func(s any) uint64 { return s.(state).hash() },
		DescribeOperation: func(in, _ any) string { return in.(input).String() },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
}

func byKey(ops []porcupine.Operation) [][]porcupine.Operation {
	keys := map[string][]porcupine.Operation{}
	for _, op := range ops {
		key := op.Input.(input).Key
		keys[key] = append(keys[key], op)
	}
	var parts [][]porcupine.Operation
	for _, part := range keys {
		parts = append(parts, part)
	}
	return parts
}

// step reports whether in could have had its outcome in state s, and returns
// the next state. An operation without a known outcome may take effect at any
// time after its call, or never, which the model places at the very end.
func (s state) step(in input) (bool, state) {
	switch in.Kind {
	case Acquire:
		return s.acquire(in)
	case Extend:
		return s.extend(in)
	case Release:
		return s.release(in)
	case Force:
		s.leases = nil
		return true, s
	case Heal:
		return true, s.heal(in)
	case Forget:
		return true, s.doubtAll()
	}
	return false, s
}

func (s state) acquire(in input) (bool, state) {
	switch in.Outcome {
	case Busy:
		// A grant that crossed the end of the wait may have left a slot dirty.
		return in.contended || s.ghost || len(s.leases)+s.withdrawn() >= in.Slots, s.doubtSlots()
	case Unknown:
		s.ghost = true
		return true, s
	case OK:
		return s.grant(in)
	case Lost: // granted and taken away before the caller knew
		return true, s
	}
	return false, s
}

func (s state) grant(in input) (bool, state) {
	if in.Slot < 0 || in.Slot >= in.Slots {
		return false, s
	}
	record := s.slot(in.Slot)
	rest := make([]held, 0, len(s.leases)+1)
	for _, l := range s.leases {
		switch live := !l.over(in); {
		case live && l.slot == in.Slot:
			return false, s
		case l.slot != in.Slot:
			rest = append(rest, l)
		case l.cleaned:
			record.status, record.doubtful = lock.SlotFree, true
		}
	}
	if in.Fence <= s.newest(in) || !record.fits(in, s.ghost) {
		return false, s
	}
	s = s.withSlot(in.Slot, slot{fence: in.Fence})
	s.fence = max(s.fence, in.Fence)
	s.leases = append(rest, held{token: in.Token, fence: in.Fence, slot: in.Slot, until: in.Deadline})
	slices.SortFunc(s.leases, func(a, b held) int { return a.slot - b.slot })
	return true, s
}

// newest returns the fence that the grant in must exceed. The grant of a pool may
// be older than its call, and than the grants of other slots; see FenceErrors.
func (s state) newest(in input) uint64 {
	if in.Slots > 1 {
		return s.slot(in.Slot).fence
	}
	return s.fence
}

// fits reports whether a grant can find the slot in the state that it reports.
// Nobody but its holder makes a slot clean. A clean slot can become dirty by a
// grant that its process never received: it was stopped until the grant expired,
// and the same call was granted another. Such a slot was not released.
func (r slot) fits(in input, ghost bool) bool {
	switch {
	case in.Found == "":
		return true
	case in.Found == Clean:
		return r.status == lock.SlotFree
	case r.status == lock.SlotFree:
		return r.doubtful || ghost || in.Found != lock.LeftReleased
	}
	return r.status != lock.SlotWithdrawn || r.doubtful
}

// over reports whether the lease may be gone at the time of in.
func (l held) over(in input) bool { return l.doubtful || in.Return >= l.until }

func (s state) extend(in input) (bool, state) {
	i := s.find(in.Token)
	switch in.Outcome {
	case OK:
		if i < 0 {
			return false, s
		}
		return true, s.with(i, func(l *held) { l.until, l.doubtful = in.Deadline, false })
	case Lost:
		return s.lost(i, in)
	}
	return true, s // unknown: it can only have extended the lease
}

func (s state) release(in input) (bool, state) {
	i := s.find(in.Token)
	if in.Outcome == Lost {
		return s.lost(i, in)
	}
	if i < 0 {
		return in.Outcome == Unknown, s
	}
	if in.Handback != "" {
		s = s.withSlot(s.leases[i].slot, slot{status: in.Handback, fence: s.slot(s.leases[i].slot).fence})
	}
	s.leases = slices.Delete(slices.Clone(s.leases), i, i+1)
	return true, s
}

// heal puts a withdrawn slot back into circulation, dirty.
func (s state) heal(in input) state {
	if r := s.slot(in.Slot); r.status == lock.SlotWithdrawn {
		return s.withSlot(in.Slot, slot{fence: r.fence})
	}
	return s
}

// slot returns the record of a slot.
func (s state) slot(n int) slot {
	if n < len(s.slots) {
		return s.slots[n]
	}
	return slot{}
}

func (s state) withSlot(n int, r slot) state {
	s.slots = slices.Clone(s.slots)
	for len(s.slots) <= n {
		s.slots = append(s.slots, slot{})
	}
	s.slots[n] = r
	return s
}

// withdrawn returns the number of slots that may be withdrawn.
func (s state) withdrawn() (n int) {
	for _, r := range s.slots {
		if r.status == lock.SlotWithdrawn {
			n++
		}
	}
	return n
}

// doubtSlots returns s with slots that may all be dirty, but those that are
// withdrawn.
func (s state) doubtSlots() state {
	s.slots = slices.Clone(s.slots)
	for i := range s.slots {
		s.slots[i].doubtful = s.slots[i].doubtful || s.slots[i].status == lock.SlotFree
	}
	return s
}

// lost applies the loss of a lease to its holder. The loss may come from the
// holder's own clock, which ends before the server's, and even earlier after a
// shortening extension whose answer was lost. Then the server may still have
// the lease, or may have received it back since: a lease that was lost by time
// is released in the background.
func (s state) lost(i int, in input) (bool, state) {
	switch {
	case i < 0:
		return true, s
	case in.Deadline != 0 && in.Return >= in.Deadline:
		return true, s.with(i, func(l *held) {
			l.until = min(l.until, in.Deadline)
			l.cleaned = l.cleaned || in.Handback == lock.SlotFree
		})
	case !s.leases[i].over(in):
		return false, s
	}
	return true, s.with(i, func(l *held) { l.doubtful = true })
}

func (s state) doubtAll() state {
	for i := range s.leases {
		s = s.with(i, func(l *held) { l.doubtful = true })
	}
	s.slots = slices.Clone(s.slots)
	for i := range s.slots {
		s.slots[i].doubtful = true
	}
	s.ghost = true
	return s
}

func (s state) with(i int, change func(*held)) state {
	s.leases = slices.Clone(s.leases)
	change(&s.leases[i])
	return s
}

func (s state) find(token string) int {
	return slices.IndexFunc(s.leases, func(l held) bool { return l.token == token })
}

func (s state) equal(o state) bool {
	return s.fence == o.fence && s.ghost == o.ghost && slices.Equal(s.leases, o.leases) && slices.Equal(s.slots, o.slots)
}

func (s state) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.fence, s.ghost, s.slots)
	for _, l := range s.leases {
		_, _ = h.Write([]byte(l.token))
	}
	return h.Sum64()
}

func (s state) String() string {
	var lines []string
	for _, l := range s.leases {
		line := fmt.Sprintf("slot %d: lease %.6s fence %d until %s", l.slot, l.token, l.fence, at(l.until))
		if l.doubtful {
			line += " or gone"
		}
		lines = append(lines, line)
	}
	for n, r := range s.slots {
		if r.status != "" {
			lines = append(lines, fmt.Sprintf("slot %d %s (doubtful: %v)", n, r.status, r.doubtful))
		}
	}
	if s.ghost {
		lines = append(lines, "perhaps a lease that nobody knows of")
	}
	if len(lines) == 0 {
		lines = []string{"free"}
	}
	return fmt.Sprintf("%s; highest fence %d", strings.Join(lines, ", "), s.fence)
}
