package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/lock/driver"
)

// Slot is a leased slot of a [Pool]. Any number of goroutines may use it.
type Slot struct {
	*Lease

	pool    *Pool
	last    *lastSlot
	found   *driver.Found // as the driver granted it; not changed
	work    phase         // Init and the work
	cleanup phase         // the Cleanup after the work

	seen    instant                // the last look at the clock
	note    atomic.Pointer[string] // nil if it was not set
	strikes atomic.Int64           // failed Inits in a row, as it will be handed back
	failure atomic.Pointer[string] // error of the Init that failed, nil without one
}

// slotAndLease is the room for both: a slot costs no allocation more than a lease.
type slotAndLease struct {
	slot  Slot
	lease Lease
}

// newSlot returns the slot of lease, in the room that newLease has made for it.
func newSlot(lease *Lease, c *call) *Slot {
	s := c.slot
	s.Lease, s.pool, s.last, s.found, s.seen = lease, c.pool, c.last, lease.hold.grant.Found, lease.since
	if s.found == nil {
		s.found = &driver.Found{}
	}
	if s.found.Strikes != 0 {
		s.strikes.Store(int64(s.found.Strikes))
	}
	s.work.slot, s.cleanup.slot = s, s
	return s
}

// Number returns the number of the slot, 0 to Size-1. It may be greater if another
// program has enlarged the pool while the call waited, see [Pool].Resize.
func (s *Slot) Number() int { return s.Slot() }

// Context returns the context of the work: it ends with the context of the
// call, when the lease is lost, and before Cleanup runs.
func (s *Slot) Context() context.Context { return &s.work }

// Left returns who left the slot dirty, when and why, or nil if the slot was
// handed back clean. Cleanup and Init see it.
func (s *Slot) Left() *Leaving { return s.found.Left }

// Note returns the note of the slot: the last one that was set, by this holder
// or an earlier one.
func (s *Slot) Note() string {
	if note := s.note.Load(); note != nil {
		return *note
	}
	return s.found.Note
}

// SetNote sets the note for the next holders of the slot, at most 256 bytes of
// UTF-8; else it returns ErrInvalid. The note is stored when the slot is handed
// back: a holder that crashes or loses its lease leaves the earlier note.
func (s *Slot) SetNote(note string) error {
	switch {
	case len(note) > driver.MaxNote:
		return invalidOption("the note has %d bytes, want at most %d", len(note), driver.MaxNote)
	case !utf8.ValidString(note):
		return invalidOption("the note %q is not valid UTF-8", note)
	}
	s.note.Store(&note)
	return nil
}

// Release ends the context of the work, runs Cleanup and hands the slot back. It
// is idempotent, also while another call runs.
//
// The first call returns ErrLost if the lease was lost before; the slot is then
// not cleaned. It returns the error of a Cleanup that failed, which withdraws
// the slot, and the errors of [Lease.Release].
func (s *Slot) Release() error {
	release, cleanup := s.leave()
	if release != nil {
		release = fmt.Errorf("release %q: %w", s.Key(), release)
	}
	return errors.Join(cleanup, release)
}

// leave cleans the slot and hands it back, once. It returns the error of the
// release and the error of the Cleanup.
func (s *Slot) leave() (release, cleanup error) {
	if !s.work.end() { // the slot is handed back once
		return nil, nil
	}
	f := withdrawn(unfinished)
	defer func() { release = s.handBack(f) }()
	f, cleanup = s.clean(&s.cleanup)
	return nil, cleanup
}

// fate is what a release makes of a slot: clean, or withdrawn for a reason. A
// slot whose lease was lost has the zero fate: the release changes nothing of it.
type fate struct {
	status driver.SlotStatus
	reason string // of a withdrawal
}

func withdrawn(reason string) fate {
	return fate{driver.SlotWithdrawn, truncate(reason, MaxReason)}
}

// unfinished is the reason of a slot whose Cleanup did not return.
const unfinished = "Cleanup called runtime.Goexit"

// clean runs Cleanup and returns the slot's fate (P3). Without a Cleanup there is
// nothing to protect: the release finds out whether the lease is live.
func (s *Slot) clean(p *phase) (fate, error) {
	if s.pool.Cleanup == nil {
		return fate{status: driver.SlotFree}, nil
	}
	if !s.sure() {
		return fate{}, nil
	}
	p.until = s.seen.add(s.pool.cleanupTimeout())
	if err := s.runCleanup(p); err != nil {
		if !s.live() {
			return fate{}, nil // P8: cut by the loss, which is no failure
		}
		return withdrawn(err.Error()), err
	}
	return fate{status: driver.SlotFree}, nil
}

// sure reports whether the lease is live. If the driver has hinted at a loss, it asks
// the driver: the next holder may have the slot.
func (s *Slot) sure() (live bool) {
	if s.hold.inDoubt() {
		_ = s.hold.confirm(s.Lease) // only a loss counts
	}
	s.seen, live = s.liveNow()
	return live
}

func (s *Slot) runCleanup(p *phase) (err error) {
	defer p.end()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cleanup of slot %d of %q panicked: %v", s.Number(), s.Key(), p)
		}
	}()
	if err := s.pool.Cleanup(p, s); err != nil {
		return fmt.Errorf("cleanup of slot %d of %q: %w", s.Number(), s.Key(), err)
	}
	return nil
}

// truncate returns at most n bytes of s, without half a character at the end.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// handBack releases the lease, with what becomes of the slot in the same
// operation (P5).
func (s *Slot) handBack(f fate) error {
	strikes := int(s.strikes.Load())
	if f.status == driver.SlotFree && strikes >= s.pool.strikes() { // P8
		reason := fmt.Sprintf("%d Inits in a row have failed", strikes)
		if last := s.failure.Load(); last != nil {
			reason += ", the last one: " + *last
		}
		f = withdrawn(reason)
	}
	s.last.had(s.Number(), f.status != "" && strikes > 0, s.seen)
	back := s.handback(f, strikes)
	err := s.Lease.leaveAs(back)
	if err == nil {
		s.hold.locker.observeWithdrawal(s.Key(), s.Number(), back)
	}
	return err
}

// observeWithdrawal reports the slot if back, with which it was released, has withdrawn
// it.
func (l *Locker) observeWithdrawal(key string, slot int, back *driver.Handback) {
	if back != nil && back.Status == driver.SlotWithdrawn {
		l.observe(Withdrawn{Key: key, Slot: slot, Reason: back.Reason})
	}
}

// handedClean is the Handback of every clean slot without a note and strikes.
var handedClean = driver.Handback{Status: driver.SlotFree}

// handback returns f for the driver.
func (s *Slot) handback(f fate, strikes int) *driver.Handback {
	note := s.Note()
	switch {
	case f.status == "":
		return nil
	case f.status == driver.SlotFree && note == "" && strikes == 0:
		return &handedClean
	}
	return &driver.Handback{Status: f.status, Reason: f.reason, Note: note, Strikes: strikes}
}

// prepare cleans a dirty slot and runs Init. If it fails, panics or calls
// runtime.Goexit, it hands the slot back; errUnclean means that the caller may
// take another slot.
func (s *Slot) prepare(ctx context.Context) (err error) {
	if s.found.Left == nil && s.pool.Init == nil && ctx.Err() == nil {
		return nil // nothing to do
	}
	ready := false
	f := withdrawn(unfinished)
	cleaned := false
	defer func() {
		switch {
		case ready:
		case cleaned:
			_, _ = s.leave() // P2: Cleanup also runs after a failed Init
			err = joinLoss(s.Key(), err, s.loss())
		default:
			s.work.end()
			err = joinLoss(s.Key(), err, s.handBack(f))
		}
	}()
	if s.found.Left == nil {
		f = fate{status: driver.SlotFree}
	} else { // P4
		var unclean error
		if f, unclean = s.clean(&phase{slot: s}); unclean != nil {
			return errUnclean
		}
		if err := s.Err(); err != nil {
			return fmt.Errorf("acquire %q: %w", s.Key(), err)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("acquire %q: %w", s.Key(), contextError(ctx))
	}
	cleaned = true
	err = s.init()
	ready = err == nil
	return err
}

// init runs Init and counts its failures. An Init that fails because its
// context has ended is no strike.
func (s *Slot) init() (err error) {
	if s.pool.Init == nil {
		return nil
	}
	failed := true // also by a panic or runtime.Goexit
	defer func() {
		if !failed && s.found.Strikes == 0 {
			return
		}
		switch {
		case !failed:
			s.strikes.Store(0)
		case s.work.Err() == nil:
			s.strikes.Add(1)
			if err != nil {
				text := err.Error()
				s.failure.Store(&text)
			}
		}
	}()
	if err := s.pool.Init(&s.work, s); err != nil {
		return fmt.Errorf("init of slot %d of %q: %w", s.Number(), s.Key(), err)
	}
	failed = false
	return nil
}

// lastSlots remembers the pools of this process.
type lastSlots struct {
	latest atomic.Pointer[lastSlot] // the one of the last call, found without the mutex
	mu     sync.Mutex               // guards byKey
	byKey  map[string]*lastSlot
}

// lastSlot remembers, for one pool, the slot that this process had last, and
// whether the last Init of that slot failed (P7). Of two goroutines that change
// it at once, one wins.
type lastSlot struct {
	key  string
	next atomic.Pointer[driver.Pool] // for the next request; replaced and not changed
	at   atomic.Int64                // the instant of its last use
}

// maxLastSlots bounds the remembered pools. Forgetting one is harmless.
const maxLastSlots = 256

// of returns the memory of a pool.
func (ls *lastSlots) of(key string, c *clock) *lastSlot {
	if s := ls.latest.Load(); s != nil && s.key == key {
		return s
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.byKey[key]
	if s == nil {
		s = &lastSlot{key: key}
		s.next.Store(&driver.Pool{Prefer: -1, Avoid: -1})
		ls.add(key, s, c.now())
	}
	ls.latest.Store(s)
	return s
}

// add stores s if there is room. The caller holds ls.mu.
func (ls *lastSlots) add(key string, s *lastSlot, now instant) {
	s.at.Store(int64(now))
	if len(ls.byKey) >= maxLastSlots/4 { // L18
		maps.DeleteFunc(ls.byKey, func(_ string, old *lastSlot) bool { return now.sub(instant(old.at.Load())) > driver.PoolMemory })
	}
	if len(ls.byKey) >= maxLastSlots {
		return
	}
	if ls.byKey == nil {
		ls.byKey = make(map[string]*lastSlot)
	}
	ls.byKey[key] = s
}

// wants returns the part of a request about its slot. Requests share it.
func (s *lastSlot) wants(quarantine time.Duration) *driver.Pool {
	w := s.next.Load()
	if w.Quarantine != quarantine {
		w = &driver.Pool{Quarantine: quarantine, Prefer: w.Prefer, Avoid: w.Avoid}
		s.next.Store(w)
	}
	return w
}

// had records that the process has handed slot back.
func (s *lastSlot) had(slot int, failed bool, now instant) {
	prefer, avoid := slot, -1
	if failed {
		prefer, avoid = -1, slot
	}
	s.at.Store(int64(now))
	if w := s.next.Load(); w.Prefer != prefer || w.Avoid != avoid {
		s.next.Store(&driver.Pool{Quarantine: w.Quarantine, Prefer: prefer, Avoid: avoid})
	}
}

// keys returns the sorted keys of the pools.
func (ls *lastSlots) keys() []string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Sorted(maps.Keys(ls.byKey))
}
