package request

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/stack"
	"github.com/megaframework/mega/lock"
)

// inspection records what the page of an error in env dev shows beside the
// error, and the place of the error for the log. It exists in the envs dev and
// test alone.
type inspection struct {
	mu    sync.Mutex // guards locks and their fields
	locks []*lockUse
}

// lockUse is one call for locks in a request. A nil *lockUse records nothing.
type lockUse struct {
	of    *inspection
	keys  []string
	began time.Time
	calls []uintptr // the call, as from runtime.Callers

	lease  *lock.Lease // nil until granted
	waited time.Duration
	ended  bool  // With has returned, or there is no lease
	err    error // with which it ended
}

// inspected returns a new inspection for a request of the app, or nil.
func (h *Host) inspected() *inspection {
	if h.App.Env == "dev" || h.App.Env == "test" {
		return &inspection{}
	}
	return nil
}

// Bounds on an inspection: the frames of a call, and the calls of a request, of
// which the last are kept.
const (
	maxCalls = 24
	maxLocks = 100
)

// inspect records a call for keys. It resolves no frames: only the page of an
// error needs them.
func (w *Work) inspect(keys []string) *lockUse {
	if w.Exchange == nil || w.Exchange.record.inspection == nil {
		return nil
	}
	u := &lockUse{of: w.Exchange.record.inspection, keys: slices.Clone(keys), began: time.Now(), calls: make([]uintptr, maxCalls)}
	u.calls = u.calls[:runtime.Callers(3, u.calls)]
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	if len(u.of.locks) == maxLocks {
		u.of.locks = slices.Delete(u.of.locks, 0, 1)
	}
	u.of.locks = append(u.of.locks, u)
	return u
}

func (u *lockUse) granted(lease *lock.Lease) {
	if u == nil {
		return
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.lease, u.waited = lease, time.Since(u.began)
}

func (u *lockUse) end(err error) {
	if u == nil {
		return
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.ended, u.err = true, err
	if u.lease == nil {
		u.waited = time.Since(u.began)
	}
}

// stateLocked describes a use at the time of an error of the request. A panic
// leaves With without its end being recorded.
func (u *lockUse) stateLocked(err error) string {
	switch {
	case u.lease == nil && u.ended:
		return "not acquired"
	case u.lease == nil:
		return "waiting"
	case u.ended && u.err != nil && errors.Is(err, u.err), !u.ended:
		return "held"
	}
	return "released"
}

// where returns the place of an error of the request: of its panic, of the call
// of Error, or of the call for a lock that was refused. Other errors have no
// place.
func (rec *record) where(err error) (stack.Frame, bool) {
	if p, ok := errors.AsType[*panicError](err); ok {
		frames := stack.Parse(p.stack)
		if i := slices.IndexFunc(frames, func(f stack.Frame) bool { return f.Own }); i >= 0 {
			return frames[i], true
		}
		return stack.Frame{}, false
	}
	if own, ok := errors.AsType[*Error](err); ok {
		if f, ok := stack.FirstOwn(own.callers[:]); ok {
			return f, true
		}
	}
	if rec.inspection == nil {
		return stack.Frame{}, false
	}
	rec.inspection.mu.Lock()
	defer rec.inspection.mu.Unlock()
	for _, u := range rec.inspection.locks {
		if u.lease == nil && u.err != nil && errors.Is(err, u.err) {
			return stack.FirstOwn(u.calls)
		}
	}
	return stack.Frame{}, false
}

// places returns the place of the error of o as attributes of the log, or
// else the place of the handler, in the envs dev and test.
func (rec *record) places(o outcome) []slog.Attr {
	if rec.inspection == nil {
		return nil
	}
	if f, ok := rec.where(o.err); ok {
		return []slog.Attr{slog.String("at", f.File+":"+strconv.Itoa(f.Line))}
	}
	if o.handler == nil {
		return nil
	}
	f, ok := stack.Declared(o.handler)
	if !ok || !f.Own {
		return nil
	}
	return []slog.Attr{slog.String("handler", fmt.Sprintf("%s  %s:%d", f.Func, f.File, f.Line))}
}
