package driver

import (
	"context"
	"fmt"
	"time"
)

// PoolMemory is the time after which a backend forgets the slots of a pool that
// has neither holders nor waiters nor resting or withdrawn slots. The slots of a
// forgotten pool are unknown again (P10).
const PoolMemory = time.Minute

// MaxNote is the maximum length of the note of a slot, in bytes.
const MaxNote = 256

// PoolDriver is an optional interface of a Driver that stores the state of each
// slot of a pool. The front refuses a Request with Pool, and a call below, with
// ErrUnsupported if the driver does not implement it.
//
// # The state of a slot
//
// A backend keeps a record for each slot of a key that was requested with Pool.
// It changes as follows:
//
//	from         by                                          to
//	(no record)  -                                           dirty, Why LeftUnknown, no rest (P10)
//	dirty, free  a grant                                     held
//	held         Release with Handback.Status SlotFree       free
//	held         Release with Handback.Status SlotDirty      dirty, with Handback.Left or else LeftUnknown, no rest
//	held         Release with Handback.Status SlotWithdrawn  withdrawn, with Handback.Reason
//	held         Release without Handback                    resting, Why LeftReleased
//	held         expiry, force, death of its process         resting, Why LeftExpired, LeftForced, LeftDied
//	resting      the end of Quarantine                       dirty
//	free         a shrink below its number                   dirty, Why LeftShrunk, no rest (P9)
//	withdrawn,   Heal                                        dirty, Why LeftHealed, no rest; Strikes 0
//	  resting
//
// A rest lasts for the Quarantine of the newest request with Pool, from the
// first call that sees the loss; without a Quarantine the slot is dirty at once
// (P6). A slot that is handed back while its number is not below the size of
// the pool counts as shrunk instead of free. A resting or withdrawn slot stays
// so when the pool shrinks and grows.
//
// The note and the strikes of a slot change by a Handback (and by Heal) only.
// While a slot is held, nothing but its end changes its record, so that the
// front can compute both.
//
// # The choice of a slot
//
// A request is granted as soon as a slot below the size is free or dirty. It
// gets Pool.Prefer if that slot is free; else the lowest free slot; else the
// lowest dirty slot; and Pool.Avoid only if there is no other (P7). The choice
// never changes who is served: the head of the queue, at once. When a rest ends
// or a slot expires, the head is served within 50 ms plus one round trip (P11).
//
// When every slot below the size is withdrawn, requests and waiters are refused
// at once with a *NotAcquiredError that has Withdrawn set (P8).
//
// A request without Pool for such a key takes part like any other, and its slot
// is not handed back clean.
type PoolDriver interface {
	Driver

	// Heal makes a withdrawn or resting slot dirty and serves the queue. It
	// changes no other slot, and is no error for one. A copy of the call that
	// arrives later changes nothing.
	Heal(ctx context.Context, key string, slot int, reason string, by Holder) error
}

// Pool is the part of a Request that concerns a pool whose slots have states.
type Pool struct {
	Quarantine time.Duration // how long a slot that was not handed back rests
	Prefer     int           // the slot that this process had last; -1 for none
	Avoid      int           // the slot whose preparation failed last in this process; -1 for none
}

// Found is the record of a slot at the moment of its grant.
type Found struct {
	Left    *Leaving // why the slot is dirty; nil if it was handed back clean
	Note    string   // from the last Handback
	Strikes int      // from the last Handback
}

// Leaving records the holder that left a slot dirty, the time and the reason.
type Leaving struct {
	By  Holder    `json:"by"` // the zero Holder if not known
	At  time.Time `json:"at,omitzero"`
	Why string    `json:"why"` // one of the constants below
}

// The reasons why a slot is dirty.
const (
	LeftUnknown  = "unknown"  // the backend knows nothing of the slot
	LeftExpired  = "expired"  // its lease expired
	LeftForced   = "forced"   // an operator forced its release
	LeftDied     = "died"     // its process died
	LeftReleased = "released" // it was released without a Handback
	LeftShrunk   = "shrunk"   // the pool was smaller than its number
	LeftHealed   = "healed"   // an operator put it back into circulation
)

// Handback is the state of a slot after its release (P5).
type Handback struct {
	// Status is SlotFree for a clean slot, SlotWithdrawn, or SlotDirty for a
	// slot that its holder has not touched.
	Status  SlotStatus
	Left    *Leaving // under SlotDirty: Found.Left of the grant; nil if not known, which also keeps the stored note and strikes
	Reason  string   // under SlotWithdrawn
	Note    string   // at most MaxNote bytes
	Strikes int      // failed preparations in a row
}

// SlotStatus is the status of a slot of a pool.
type SlotStatus string

// The statuses of a slot.
const (
	SlotFree      SlotStatus = "free"      // handed back clean
	SlotHeld      SlotStatus = "held"      //
	SlotDirty     SlotStatus = "dirty"     // may be granted; its holder must clean it first
	SlotResting   SlotStatus = "resting"   // dirty, and not granted before its rest has ended
	SlotWithdrawn SlotStatus = "withdrawn" // granted to nobody until Heal
)

// SlotState is the state of one slot, seen from outside.
type SlotState struct {
	Number     int        `json:"number"`
	Status     SlotStatus `json:"state"`
	Until      time.Time  `json:"until,omitzero"`       // the end of the rest, on the local clock
	Reason     string     `json:"reason,omitempty"`     // of a withdrawal; else Leaving.Why of a dirty or resting slot
	LastHolder Holder     `json:"last_holder,omitzero"` // the present or the last holder, if known
	Note       string     `json:"note,omitempty"`
	Strikes    int        `json:"strikes,omitempty"`
}

// Free returns the number of slots that a request could get now, the dirty ones
// included.
func (s State) Free() int {
	if s.Slots == nil {
		return max(s.Size-len(s.Holders), 0)
	}
	n := 0
	for _, slot := range s.Slots {
		if slot.Number < s.Size && (slot.Status == SlotFree || slot.Status == SlotDirty) {
			n++
		}
	}
	return n
}

// Tally is the number of slots of a pool by status.
type Tally struct {
	Size      int `json:"size"`
	Held      int `json:"held"` // greater than Size while a pool that has shrunk drains
	Free      int `json:"free"` // clean; State.Free also counts the dirty ones
	Dirty     int `json:"dirty"`
	Resting   int `json:"resting"`
	Withdrawn int `json:"withdrawn"`
}

// Tally counts the slots of s by status. The slots of a key without states are
// held or free.
func (s State) Tally() Tally {
	t := Tally{Size: s.Size}
	if s.Slots == nil {
		t.Held, t.Free = len(s.Holders), s.Free()
		return t
	}
	for _, slot := range s.Slots {
		switch slot.Status {
		case SlotHeld:
			t.Held++
		case SlotFree:
			t.Free++
		case SlotDirty:
			t.Dirty++
		case SlotResting:
			t.Resting++
		case SlotWithdrawn:
			t.Withdrawn++
		}
	}
	return t
}

// IsPool reports whether the key has more than one slot, or slots with states.
func (s State) IsPool() bool { return s.Size > 1 || s.Slots != nil }

// PoolSizeError is an ErrPoolSize with both sizes.
type PoolSizeError struct {
	Key   string
	Size  int // of the pool, which is in use
	Asked int // by the refused request
}

func (e *PoolSizeError) Error() string {
	return fmt.Sprintf("lock: pool %q has %d slots, not %d", e.Key, e.Size, e.Asked)
}

// Code returns "lock.pool_size".
func (e *PoolSizeError) Code() string { return ErrPoolSize.code }

// Is reports whether target is ErrPoolSize.
func (e *PoolSizeError) Is(target error) bool { return target == ErrPoolSize }
