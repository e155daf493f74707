package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/megaframework/mega/lock/driver"
)

// Slot is a leased slot of a [Pool]. Any number of goroutines may use it.
type Slot struct {
	*Lease

	pool  *Pool
	found driver.Found
	work  context.Context // of Init and the work
	end   context.CancelCauseFunc

	mu       sync.Mutex // guards the fields below
	note     string
	strikes  int // failed Inits in a row, as it will be handed back
	released bool
}

// newSlot returns the slot of lease. From now on the backend must assume that it
// was touched.
func newSlot(ctx context.Context, lease *Lease, p *Pool) *Slot {
	s := &Slot{Lease: lease, pool: p}
	if f := lease.hold.grant.Found; f != nil {
		s.found, s.note, s.strikes = *f, f.Note, f.Strikes
	}
	lease.hold.handBack(nil)
	lease.hold.locker.lastSlots.uses(p.Key, lease.hold.locker.clock.now())
	s.work, s.end = workContext(ctx, lease)
	return s
}

// workContext returns a context that ends with ctx and with the lease. The
// lease itself does not end with ctx (P1).
func workContext(ctx context.Context, lease *Lease) (context.Context, context.CancelCauseFunc) {
	held, cancel := lease.Context(), context.CancelFunc(func() {})
	if d, ok := ctx.Deadline(); ok {
		held, cancel = context.WithDeadline(held, d)
	}
	work, end := context.WithCancelCause(held)
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // else the deadline of work itself has passed
			end(context.Cause(ctx))
		}
	})
	return work, func(cause error) {
		stop()
		end(cause)
		cancel()
	}
}

// Number returns the number of the slot, 0 to Size-1.
func (s *Slot) Number() int { return s.Slot() }

// Context returns the context of the work: it ends with the context of the
// call, when the lease is lost, and before Cleanup runs.
func (s *Slot) Context() context.Context { return s.work }

// Left returns who left the slot dirty, when and why, or nil if the slot was
// handed back clean. Cleanup and Init see it.
func (s *Slot) Left() *Leaving { return s.found.Left }

// Note returns the note of the slot: the last one that was set, by this holder
// or an earlier one.
func (s *Slot) Note() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.note
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = note
	return nil
}

// Release ends the context of the work, runs Cleanup and hands the slot back. It
// is idempotent, also while another call runs.
//
// The first call returns ErrLost if the lease was lost before; the slot is then
// not cleaned. It returns the error of a Cleanup that failed, which has
// withdrawn the slot, and otherwise the errors of [Lease.Release].
func (s *Slot) Release() error {
	release, cleanup := s.leave()
	if release != nil {
		return fmt.Errorf("release %q: %w", s.Key(), release)
	}
	return cleanup
}

// leave cleans the slot and hands it back, once. It returns the error of the
// release and the error of the Cleanup.
func (s *Slot) leave() (release, cleanup error) {
	s.mu.Lock()
	again := s.released
	s.released = true
	s.mu.Unlock()
	if again {
		return nil, nil
	}
	s.end(errReleased)
	// The Handback of a Cleanup that calls runtime.Goexit.
	h := s.withdrawn("Cleanup called runtime.Goexit")
	defer func() { release = s.handBack(h) }()
	h, cleanup = s.clean()
	return nil, cleanup
}

// clean runs Cleanup and returns what becomes of the slot: clean or withdrawn,
// or nil if the lease was lost (P3).
func (s *Slot) clean() (*driver.Handback, error) {
	if !s.live() {
		return nil, nil
	}
	err := s.runCleanup()
	switch {
	case !s.live():
		return nil, nil // P8: cut by the loss, which is no failure
	case err != nil:
		return s.withdrawn(err.Error()), err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &driver.Handback{Status: driver.SlotFree, Note: s.note, Strikes: s.strikes}, nil
}

func (s *Slot) runCleanup() (err error) {
	if s.pool.Cleanup == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.Lease.Context(), s.pool.cleanupTimeout())
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cleanup of slot %d of %q panicked: %v", s.Number(), s.Key(), p)
		}
	}()
	if err := s.pool.Cleanup(ctx, s); err != nil {
		return fmt.Errorf("cleanup of slot %d of %q: %w", s.Number(), s.Key(), err)
	}
	return nil
}

func (s *Slot) withdrawn(reason string) *driver.Handback {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &driver.Handback{Status: driver.SlotWithdrawn, Reason: truncate(reason, MaxReason), Note: s.note, Strikes: s.strikes}
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

// handBack releases the lease, with h in the same operation (P5).
func (s *Slot) handBack(h *driver.Handback) error {
	l := s.hold.locker
	if h != nil && h.Status == driver.SlotFree && h.Strikes >= s.pool.strikes() { // P8
		h.Status = driver.SlotWithdrawn
		h.Reason = fmt.Sprintf("%d Inits in a row have failed", h.Strikes)
	}
	s.hold.handBack(h)
	l.lastSlots.had(s.Key(), s.Number(), h != nil && h.Strikes > 0, l.clock.now())
	err := s.Lease.leave()
	if err == nil && h != nil && h.Status == driver.SlotWithdrawn {
		l.observe(Withdrawn{Key: s.Key(), Slot: s.Number(), Reason: h.Reason})
	}
	return err
}

// prepare cleans a dirty slot and runs Init. If it fails, panics or calls
// runtime.Goexit, it hands the slot back; errUnclean means that the caller may
// take another slot.
func (s *Slot) prepare(ctx context.Context) (err error) {
	ready := false
	h := s.withdrawn("Cleanup called runtime.Goexit")
	cleaned := false
	defer func() {
		switch {
		case ready:
		case cleaned:
			loss, _ := s.leave() // P2: Cleanup also runs after a failed Init
			err = joinLoss(s.Key(), err, loss)
		default:
			s.end(errReleased)
			err = joinLoss(s.Key(), err, s.handBack(h))
		}
	}()
	if s.found.Left != nil { // P4
		var unclean error
		if h, unclean = s.clean(); unclean != nil {
			return errUnclean
		}
		if h == nil {
			return fmt.Errorf("acquire %q: %w", s.Key(), s.Err())
		}
	} else {
		h = &driver.Handback{Status: driver.SlotFree, Note: s.note, Strikes: s.strikes}
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
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case !failed:
			s.strikes = 0
		case s.work.Err() == nil:
			s.strikes++
		}
	}()
	if err := s.pool.Init(s.work, s); err != nil {
		return fmt.Errorf("init of slot %d of %q: %w", s.Number(), s.Key(), err)
	}
	failed = false
	return nil
}

// lastSlots remembers, for each pool of this process, the slot that it had last,
// and whether the last Init of that slot failed (P7).
type lastSlots struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]lastSlot
}

type lastSlot struct {
	slot   int // -1 before the first is handed back
	failed bool
	at     instant
}

// maxLastSlots bounds the remembered pools. Forgetting one is harmless.
const maxLastSlots = 256

// uses records that the process has a slot of the pool, if it had none before.
func (ls *lastSlots) uses(key string, now instant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if _, known := ls.byKey[key]; !known {
		ls.put(key, lastSlot{-1, false, now})
	}
}

func (ls *lastSlots) had(key string, slot int, failed bool, now instant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.put(key, lastSlot{slot, failed, now})
}

// put stores s. The caller holds ls.mu.
func (ls *lastSlots) put(key string, s lastSlot) {
	if len(ls.byKey) >= maxLastSlots/4 { // L18
		maps.DeleteFunc(ls.byKey, func(_ string, old lastSlot) bool { return s.at.sub(old.at) > driver.PoolMemory })
	}
	if _, known := ls.byKey[key]; !known && len(ls.byKey) >= maxLastSlots {
		return
	}
	if ls.byKey == nil {
		ls.byKey = make(map[string]lastSlot)
	}
	ls.byKey[key] = s
}

// of returns the slot to prefer and the slot to avoid; -1 for none.
func (ls *lastSlots) of(key string) (prefer, avoid int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s, ok := ls.byKey[key]
	switch {
	case !ok:
		return -1, -1
	case s.failed:
		return -1, s.slot
	}
	return s.slot, -1
}

// keys returns the sorted keys of the pools.
func (ls *lastSlots) keys() []string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Sorted(maps.Keys(ls.byKey))
}
