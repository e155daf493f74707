package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// The frames about locks. A question has a number, which its answer repeats; 0
// means that no answer is expected.
const (
	LockAsk      = TypeLocks + iota // number, time of the first request, request: queues for a lease
	LockLeave                       // number, key, token: ends the wait
	LockRelease                     // number, key, token
	LockRenew                       // number, grants
	LockForce                       // number, key, force
	LockInspect                     // number, key, whether slots are wanted
	LockList                        // number, prefix, whether slots are wanted
	LockHeld                        // lease: the client has it from an earlier hub
	LockReported                    // the client has reported all its leases and requests
)

// The frames from the hub.
const (
	LockAnswer  = TypeLocks + 0x10 + iota // number, verdict
	LockGranted                           // token, grant: of a queued request
	LockRefused                           // token, error: of a queued request
	LockLost                              // token, error: of a grant
)

// Verdict is the first byte of an answer.
type Verdict = byte

// The verdicts. Further values follow an error.
const (
	VerdictDone Verdict = iota // the result
	VerdictQueued
	VerdictMore // a part of the result: the rest follows
	verdictBusy // position, holders
	verdictLost // cause, reason, by
	verdictClosed
	verdictFailed // text; at the end of an answer also a code
)

// The bounds of a hub on values from a client. The front checks all of them,
// with the same bounds or narrower ones.
const (
	maxKey    = 512 + 64 + 1 // with a namespace and its separator
	maxToken  = 64
	maxSlots  = 4096
	maxFences = 1 << 16
	maxTTL    = 24 * time.Hour
	maxHolder = 4 << 10 // the sum of all texts
	maxReason = 4 << 10
	// maxAhead is how far the fences of an earlier hub may be ahead of the
	// microseconds since 1970. This hub continues above them, so that an
	// unbounded number could use up the fences.
	maxAhead = 366 * 24 * time.Hour
)

// highest returns the highest fence that an earlier hub may have given.
func highest() uint64 { return uint64(time.Now().Add(maxAhead).UnixMicro()) }

// AddHolder adds a holder, with its texts cut to their bounds.
func AddHolder(f *Frame, h *driver.Holder) {
	f.String(cut(h.App)).String(cut(h.Host)).Int(int64(h.PID)).Int(int64(h.Worker)).String(cut(h.Label)).String(cut(h.Request))
	if h.Since.IsZero() {
		f.Int(0)
		return
	}
	f.Int(h.Since.UnixNano())
}

// cut shortens a text to the size for which a holder has room. Nothing depends
// on the full text, and a client with a long description of itself must not
// lose its hub.
func cut(text string) string {
	const most = maxHolder / 4
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// ReadHolder reads a value that AddHolder has written. It shares equal strings
// with last, an earlier holder.
func ReadHolder(d *Decoder, last *driver.Holder) (h driver.Holder) {
	h.App = same(last.App, d.Bytes())
	h.Host = same(last.Host, d.Bytes())
	h.PID, h.Worker = int(d.Int()), int(d.Int())
	h.Label = same(last.Label, d.Bytes())
	h.Request = d.String()
	if nanos := d.Int(); nanos != 0 {
		h.Since = time.Unix(0, nanos)
	}
	return h
}

func addHolding(f *Frame, h *driver.Holding) {
	AddHolder(f.Uint(uint64(h.Slot)).Uint(h.Fence).Int(int64(h.Left)), &h.Holder)
}

// readHolding reads a value that addHolding has written.
func readHolding(d *Decoder, last *driver.Holder) driver.Holding {
	h := driver.Holding{Slot: int(d.Uint()), Fence: d.Uint(), Left: time.Duration(d.Int())}
	h.Holder = ReadHolder(d, last)
	return h
}

// same returns b as a string. It returns known, without an allocation, if that
// is equal.
func same(known string, b []byte) string {
	if string(b) == known {
		return known
	}
	return string(b)
}

// AddRequest adds a request.
func AddRequest(f *Frame, r *driver.Request) {
	f.String(r.Key).String(r.Token).Int(int64(r.TTL)).Bool(r.Wait == 0)
	f.Uint(uint64(r.Slots)).Uint(uint64(r.Fences)).Bool(r.NoRenew)
	AddHolder(f, &r.Holder)
	addPool(f, r)
}

// ReadRequest reads what AddRequest has added. last is as for ReadHolder.
func ReadRequest(d *Decoder, last *driver.Holder) (r driver.Request, err error) {
	r.Key, r.Token, r.TTL = d.String(), d.String(), time.Duration(d.Int())
	if !d.Bool() {
		r.Wait = -1 // the client sends LockLeave when its wait has passed
	}
	slots, fences := d.Uint(), d.Uint()
	r.NoRenew = d.Bool()
	r.Holder = ReadHolder(d, last)
	if err := errors.Join(d.Err(), readPool(d, &r)); err != nil {
		return r, err
	}
	if slots < 1 || slots > maxSlots || fences > maxFences {
		return r, fmt.Errorf("a request for %d slots with %d fences", slots, fences)
	}
	r.Slots, r.Fences = int(slots), int(max(fences, 1))
	return r, errors.Join(checkName(r.Key, r.Token), CheckTTL(r.TTL), CheckHolder(&r.Holder))
}

// ReadName reads the key and the token of a grant or a request.
func ReadName(d *Decoder) (key, token string, err error) {
	key, token = d.String(), d.String()
	if err := d.Err(); err != nil {
		return key, token, err
	}
	return key, token, checkName(key, token)
}

func checkName(key, token string) error {
	if key == "" || len(key) > maxKey || token == "" || len(token) > maxToken {
		return fmt.Errorf("a key of %d bytes with a token of %d", len(key), len(token))
	}
	return nil
}

// CheckTTL returns an error for a TTL that no client sends.
func CheckTTL(ttl time.Duration) error {
	if ttl <= 0 || ttl > maxTTL {
		return fmt.Errorf("a lease for %v", ttl)
	}
	return nil
}

// CheckHolder returns an error for a holder whose texts are too long.
func CheckHolder(h *driver.Holder) error {
	if n := len(h.App) + len(h.Host) + len(h.Label) + len(h.Request); n > maxHolder {
		return fmt.Errorf("the description of the holder has %d bytes, more than %d", n, maxHolder)
	}
	return nil
}

// AddForce adds a forced release.
func AddForce(f *Frame, r *driver.Force) *Frame {
	f.Bool(r.BySlot).Uint(uint64(r.Slot)).Bool(r.ByFence).Uint(r.Fence).String(r.Reason)
	AddHolder(f, &r.By)
	return f
}

// ReadForce reads what AddForce has added. See [ReadHolder] for last.
func ReadForce(d *Decoder, last *driver.Holder) (driver.Force, error) {
	bySlot, slot, byFence, fence, reason := d.Bool(), d.Uint(), d.Bool(), d.Uint(), d.String()
	by := ReadHolder(d, last)
	if len(reason) > maxReason {
		return driver.Force{}, fmt.Errorf("the reason has %d bytes, more than %d", len(reason), maxReason)
	}
	f := driver.Force{BySlot: bySlot, Slot: int(slot), ByFence: byFence, Fence: fence, Reason: reason, By: by} //nolint:gosec // checked
	return f, cmp.Or(d.Err(), CheckSlot(slot), CheckHolder(&by))
}

// AddGrant adds the values of a grant that its request does not contain.
func AddGrant(f *Frame, g *driver.Grant, c Clock) {
	f.Uint(g.Fence).Uint(uint64(g.Slot)).Int(c.Nanos(g.Deadline)).Uint(uint64(g.Resized)).Bool(g.Queued)
	addFound(f, g)
}

// ReadGrant reads what AddGrant has added.
func ReadGrant(d *Decoder, g *driver.Grant, c Clock) {
	g.Fence, g.Slot = d.Uint(), int(d.Uint())
	g.Deadline = c.Time(d.Int())
	g.Resized, g.Queued = int(d.Uint()), d.Bool()
	readFound(d, g)
}

// AddLease adds a grant that a client holds, with its request.
func AddLease(f *Frame, g *driver.Grant, r *driver.Request, c Clock) {
	f.String(g.Key).String(g.Token).Uint(g.Fence).Uint(uint64(g.Fences)).Uint(uint64(g.Slot))
	f.Uint(uint64(r.Slots)).Int(int64(g.TTL)).Bool(g.NoRenew).Uint(g.Rev).Int(c.Nanos(g.Deadline))
	AddHolder(f, &r.Holder)
	addPool(f, r)
}

// ReadLease reads a value that AddLease has written. It limits the expiry of
// the lease to one TTL from now.
func ReadLease(d *Decoder, c Clock, last *driver.Holder) (l table.Lease, err error) {
	g := &l.Grant
	g.Key, g.Token, g.Fence = d.String(), d.String(), d.Uint()
	fences, slot, slots := d.Uint(), d.Uint(), d.Uint()
	g.TTL, g.NoRenew, g.Rev = time.Duration(d.Int()), d.Bool(), d.Uint()
	deadline := c.Time(d.Int())
	l.Holder = ReadHolder(d, last)
	var r driver.Request
	if err := errors.Join(d.Err(), readPool(d, &r)); err != nil {
		return l, err
	}
	l.Pool = r.Pool
	if g.Fence > highest() || fences > maxFences || slot >= maxSlots || slots < 1 || slots > maxSlots {
		return l, fmt.Errorf("a lease with fence %d and %d more, of slot %d in %d", g.Fence, fences, slot, slots)
	}
	g.Fences, g.Slot, l.Slots = int(fences), int(slot), int(slots)
	l.Expires = deadline.Add(driver.Margin(g.TTL))
	if last := driver.Now().Add(g.TTL); l.Expires.After(last) {
		l.Expires = last
	}
	return l, errors.Join(checkName(g.Key, g.Token), CheckTTL(g.TTL), CheckHolder(&l.Holder))
}

// AddError adds an outcome that is an error. Other values may follow it.
func AddError(f *Frame, err error) *Frame {
	if addPoolError(f, err) {
		return f
	}
	if busy, ok := errors.AsType[*driver.NotAcquiredError](err); ok {
		f.Byte(verdictBusy).Uint(uint64(busy.Position)).Bool(busy.Full).Uint(uint64(len(busy.Holders)))
		for i := range busy.Holders {
			addHolding(f, &busy.Holders[i])
		}
		return f.Uint(uint64(busy.Resized))
	}
	if lost, ok := errors.AsType[*driver.LostError](err); ok {
		f.Byte(verdictLost).String(string(lost.Cause)).String(lost.Reason)
		AddHolder(f, &lost.By)
		return f
	}
	if errors.Is(err, driver.ErrClosed) {
		return f.Byte(verdictClosed)
	}
	return f.Byte(verdictFailed).String(err.Error())
}

// The codes of failures. One follows the text of a failure that ends an answer.
const (
	failureOther byte = iota
	failureShut       // table.ErrShut: the question can be repeated
)

// AddFailure adds an outcome that is an error to an answer, as its end.
func AddFailure(f *Frame, err error) *Frame {
	AddError(f, err)
	if errors.Is(err, table.ErrShut) {
		return f.Byte(failureShut)
	}
	return f.Byte(failureOther)
}

// ReadFailure reads the rest of an outcome that AddFailure has written. The error
// names key. It wraps table.ErrShut if the question can be repeated.
func ReadFailure(o Verdict, d *Decoder, key string) error {
	if o != verdictFailed {
		return ReadError(o, d, key)
	}
	text := d.String()
	shut := text == table.ErrShut.Error() // the hub of an earlier build sends no code
	if d.Left() > 0 {
		shut = d.Byte() == failureShut
	}
	if shut {
		return fmt.Errorf("the hub: %w", table.ErrShut)
	}
	return errors.New("the hub: " + text)
}

// errHubClosing is the error of a hub that accepts no further requests: another
// hub may take them.
var errHubClosing = errors.New("the hub is closing")

// ReadError reads the rest of an outcome that AddError has written. The error
// names key.
func ReadError(o Verdict, d *Decoder, key string) error {
	switch o {
	case verdictBusy:
		busy := &driver.NotAcquiredError{Key: key, Position: int(d.Uint()), Full: d.Bool()}
		for n := d.Count(); n > 0 && d.Err() == nil; n-- {
			busy.Holders = append(busy.Holders, readHolding(d, &driver.Holder{}))
		}
		if d.Left() > 0 { // of an earlier build, it is the 0 that ends an answer
			busy.Resized = int(d.Uint())
		}
		return busy
	case verdictLost:
		lost := &driver.LostError{Key: key, Cause: driver.Cause(d.String()), Reason: d.String()}
		lost.Cause = cmp.Or(lost.Cause, driver.Expired)
		lost.By = ReadHolder(d, &driver.Holder{})
		return lost
	case verdictClosed:
		return errHubClosing
	case verdictFailed:
		return errors.New("the hub: " + d.String())
	}
	if err := readPoolError(o, d, key); err != nil {
		return err
	}
	return fmt.Errorf("the hub has answered %d, which this process does not know", o)
}

// The records of states: a key, and then its holders and waiters.
const (
	recordKey byte = iota
	recordHolding
	recordWaiter
	recordSlot // only for a client that asked for slots
)

// AddStates adds states to the answer to number, with their slots if the client
// has asked for them. It returns the frames of that answer, each of roughly
// limit bytes at most.
func AddStates(number uint64, states []driver.State, slots bool, limit int) []*Frame {
	f := Begin(LockAnswer).Uint(number).Byte(VerdictMore)
	frames := []*Frame{f}
	room := func() *Frame {
		if f.Len() > limit {
			f = Begin(LockAnswer).Uint(number).Byte(VerdictMore)
			frames = append(frames, f)
		}
		return f
	}
	for i := range states {
		s := &states[i]
		room().Byte(recordKey).String(s.Key).Uint(uint64(s.Size))
		for j := range s.Holders {
			addHolding(room().Byte(recordHolding), &s.Holders[j])
		}
		for j := range s.Waiters {
			AddHolder(room().Byte(recordWaiter), &s.Waiters[j])
		}
		for j := 0; slots && j < len(s.Slots); j++ {
			addSlot(room().Byte(recordSlot), &s.Slots[j])
		}
	}
	return append(frames, Begin(LockAnswer).Uint(number).Byte(VerdictDone))
}

// ReadStates adds the records of one frame to states.
func ReadStates(d *Decoder, states []driver.State) []driver.State {
	var last driver.Holder
	for d.Left() > 0 {
		kind := d.Byte()
		if kind == recordKey {
			states = append(states, driver.State{Key: d.String(), Size: int(d.Uint())})
			continue
		}
		if len(states) == 0 {
			return states
		}
		s := &states[len(states)-1]
		if kind == recordHolding {
			h := readHolding(d, &last)
			s.Holders, last = append(s.Holders, h), h.Holder
			continue
		}
		if kind == recordSlot {
			s.Slots = append(s.Slots, readSlot(d))
			continue
		}
		last = ReadHolder(d, &last)
		s.Waiters = append(s.Waiters, last)
	}
	return states
}
