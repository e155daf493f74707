package logging

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

// LockEvents logs the lock events that matter to an operator. Events of every
// request only appear in statistics.
type LockEvents struct {
	Log *slog.Logger

	notRenewed, notReleased, notRun limiter // in an outage there is an event for each lease or tick, several times
}

// Observe writes an event of a Locker to the log.
func (l *LockEvents) Observe(e lock.Event) {
	switch e := e.(type) {
	case lock.Lost:
		l.warn(lostLease, e.Key, slog.Uint64("fence", e.Fence), slog.Duration("held", e.Held), errorAttr(e.Err))
	case lock.NotAcquired:
		if errors.Is(e.Err, lock.ErrDeadlock) { // a defect of the program
			l.warn("lock deadlock", e.Key, errorAttr(e.Err))
		}
	case lock.Forgotten:
		l.warn("lock forgotten and released", e.Key, slog.Uint64("fence", e.Fence), slog.String("because", e.Reason), slog.String("acquired_at", e.Site))
	case lock.ForcedRelease:
		if e.Released == 0 {
			return // nobody held it
		}
		l.warn("lock released by force", e.Key, slog.String("reason", e.Reason), slog.Int("leases", e.Released))
	case lock.RenewFailed:
		if n := l.notRenewed.count(); n > 0 {
			l.warn("lock not renewed, trying again", e.Key, slog.Duration("left", e.Left), slog.Int("failures", n), errorAttr(e.Err))
		}
	case lock.ReleaseFailed:
		l.releaseFailed(e)
	case lock.Unavailable:
		l.Log.LogAttrs(context.Background(), slog.LevelError, "lock backend lost", errorAttr(e.Err))
	case lock.Available:
		l.Log.LogAttrs(context.Background(), slog.LevelInfo, "lock backend returned", slog.Duration("after", e.After))
	case lock.StillHeld:
		l.warn("shutdown waits for lock", e.Key, slog.Uint64("fence", e.Fence), slog.Duration("held", e.Held), slog.String("acquired_at", e.Site))
	case lock.Ran:
		if e.Err != nil {
			attrs := []slog.Attr{slog.Int64("tick", e.Tick), slog.Duration("took", e.Took)}
			l.warn("run failed", e.Key, append(attrs, ErrorAttrs(e.Err)...)...)
		}
	case lock.Retrying:
		l.retrying(e)
	case lock.PoolResized:
		l.warn("pool resized", e.Key, slog.Int("old", e.Old), slog.Int("new", e.New))
	case lock.Withdrawn:
		l.warn("pool slot withdrawn", e.Key, slog.Int("slot", e.Slot), slog.String("reason", e.Reason))
	case lock.Healed:
		l.Log.LogAttrs(context.Background(), slog.LevelInfo, "pool slot healed", slog.String("key", e.Key), slog.Int("slot", e.Slot), slog.String("reason", e.Reason))
	}
}

// releaseFailed logs a failed release or withdrawal.
func (l *LockEvents) releaseFailed(e lock.ReleaseFailed) {
	text := "lock not released, trying again"
	if e.Fence == 0 {
		text = "lock request not withdrawn, trying again"
	}
	if n := l.notReleased.count(); n > 0 {
		l.warn(text, e.Key, slog.Duration("left", e.Left), slog.Int("failures", n), errorAttr(e.Err))
	}
}

// retrying logs a leader or timed run that will be tried again.
func (l *LockEvents) retrying(e lock.Retrying) {
	attrs := []slog.Attr{slog.Duration("pause", e.Pause)}
	if errors.Is(e.Err, lock.ErrUnavailable) {
		n := l.notRun.count()
		if n == 0 {
			return
		}
		attrs = append(attrs, slog.Int("failures", n))
	}
	l.warn("leader or timed run failed, trying again", e.Key, append(attrs, ErrorAttrs(e.Err)...)...)
}

func (l *LockEvents) warn(text, key string, attrs ...slog.Attr) {
	l.Log.LogAttrs(context.Background(), slog.LevelWarn, text, append([]slog.Attr{slog.String("key", key)}, attrs...)...)
}

// limiter limits a log line to one per second. It is safe for concurrent use.
type limiter struct {
	mu       sync.Mutex // guards the fields below
	logged   time.Time  // when the latest line was written
	unlogged int        // events since then
}

// count counts an event. If a line is due, it returns the number of events since the
// last line; otherwise it returns 0.
func (p *limiter) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlogged++
	if time.Since(p.logged) < time.Second {
		return 0
	}
	n := p.unlogged
	p.logged, p.unlogged = time.Now(), 0
	return n
}

// errorAttr returns the attribute of err, or an empty one, which is not logged.
func errorAttr(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.String("error", err.Error())
}

// ErrorAttrs returns the attributes of an error of the program: its text, and the
// stack of a panic that it wraps.
func ErrorAttrs(err error) []slog.Attr {
	attrs := []slog.Attr{errorAttr(err)}
	if text, ok := stackOf(err); ok {
		attrs = append(attrs, slog.String(keyStack, string(text)))
	}
	return attrs
}

// stackOf returns the stack of the panic that err wraps, and reports whether there is
// one.
func stackOf(err error) ([]byte, bool) {
	if p, ok := errors.AsType[*bus.PanicError](err); ok {
		return p.Stack, true
	}
	p, ok := errors.AsType[interface {
		error
		PanicStack() []byte
	}](err)
	if !ok {
		return nil, false
	}
	return p.PanicStack(), true
}

// BusEvents logs the events of a bus that matter to an operator.
type BusEvents struct {
	Log *slog.Logger

	refused limiter // a permission that is revoked refuses every message
}

// Observe writes an event of a Bus to the log.
func (l *BusEvents) Observe(e bus.Event) {
	switch e := e.(type) {
	case bus.HandlerFailed:
		l.handlerFailed(e)
	case bus.Dropped:
		l.write(slog.LevelWarn, "messages dropped", e.SubID, slog.String("subject", e.Subject), slog.Uint64("messages", e.Count))
	case bus.Missed:
		l.write(slog.LevelWarn, "messages missed", e.SubID, slog.Int("messages", e.Count))
	case bus.GapFailed:
		attrs := []slog.Attr{slog.Int("missed", e.Missed), slog.Duration("again", e.Again)}
		l.write(slog.LevelError, "gap not repaired", e.SubID, append(attrs, ErrorAttrs(e.Err)...)...)
	case bus.Blocked:
		l.write(slog.LevelWarn, "responder blocked by requests to itself", e.SubID, slog.String("subject", e.Subject), slog.Int("handlers", e.Handlers))
	case bus.Stuck:
		l.write(slog.LevelWarn, "handler stuck", e.SubID, slog.String("subject", e.Subject), slog.Duration("for", e.For))
	case bus.Ended:
		l.write(slog.LevelError, "subscription ended", e.SubID, errorAttr(e.Err))
	case bus.AnswerFailed:
		l.write(slog.LevelWarn, "answer not sent", e.SubID, slog.String("subject", e.Subject), errorAttr(e.Err))
	case bus.PublishLost:
		l.Log.Error("published messages lost", "messages", e.Messages, "bytes", e.Bytes, "error", e.Err)
	case bus.PublishRefused:
		if n := l.refused.count(); n > 0 {
			l.Log.Error("published message refused", "subject", e.Subject, "messages", n, "error", e.Err)
		}
	case bus.Disconnected:
		l.Log.Error("bus backend lost", "error", e.Err)
	case bus.Connected:
		l.Log.Info("bus backend returned", "after", e.After)
	}
}

// handlerFailed logs the error of a handler. A responder's error is also its answer, so
// it has the level of a request with this answer.
func (l *BusEvents) handlerFailed(e bus.HandlerFailed) {
	attrs := []slog.Attr{slog.String("subject", e.Msg.Subject)}
	if id := request.IDOf(e.Msg); id != "" {
		attrs = append(attrs, slog.String("request", id))
	}
	level := slog.LevelError
	if _, panicked := stackOf(e.Err); !panicked && e.Answers {
		level = request.Severity(e.Err)
	}
	attrs = append(attrs, ErrorAttrs(e.Err)...)
	l.write(level, "handler failed", e.SubID, attrs...)
}

func (l *BusEvents) write(level slog.Level, text string, id bus.SubID, attrs ...slog.Attr) {
	attrs = append([]slog.Attr{slog.String("subscription", id.Name), slog.String("pattern", id.Pattern)}, attrs...)
	l.Log.LogAttrs(context.Background(), level, text, attrs...)
}

// LimitEvents logs the events of limits that matter to an operator.
type LimitEvents struct{ Log *slog.Logger }

// Observe writes an event of a Limiter to the log.
func (l LimitEvents) Observe(e limit.Event) {
	ctx := context.Background()
	switch e := e.(type) {
	case limit.Paused:
		l.Log.LogAttrs(ctx, slog.LevelWarn, "limit paused", slog.String("key", e.Key), slog.Duration("for", e.For), slog.String("reason", e.Reason))
	case limit.WasReset:
		l.Log.LogAttrs(ctx, slog.LevelWarn, "limit reset", slog.String("key", e.Key))
	case limit.Unavailable:
		l.Log.LogAttrs(ctx, slog.LevelError, "limit backend lost", errorAttr(e.Err))
	case limit.Available:
		l.Log.LogAttrs(ctx, slog.LevelInfo, "limit backend returned", slog.Duration("after", e.After), slog.Uint64("allowed_without_backend", e.Degraded))
	}
}
