package handlers

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Locks shows the promises of the locks, on a key of its own.
type Locks struct {
	demo  *services.LockDemo
	trail *store.Trail
}

// NewLocks returns the handlers of the page.
func NewLocks(d *services.LockDemo, t *store.Trail) *Locks { return &Locks{d, t} }

// LocksPage is the data of the page, and of its JSON.
type LocksPage struct {
	Title string `json:"-"`
	Done  string `json:"-"` // the result of the page's last action

	DriverInfo
	Holders []lock.Holding `json:"holders"`
	Waiters []lock.Holder  `json:"waiters"`
	Steps   []store.Step   `json:"steps"` // the newest first

	In     RaceInput            `json:"-"`
	Race   *services.RaceResult `json:"race,omitempty"`
	Strike string               `json:"-"` // why nothing can be killed here, a key of the texts
}

// List shows the holder and the waiters of the demo lock.
func (l *Locks) List(ctx *mega.Ctx) error {
	return l.show(ctx, lockNotice(ctx), newRaceInput(), nil)
}

func (l *Locks) show(ctx *mega.Ctx, notice string, in RaceInput, race *services.RaceResult) error {
	state, err := ctx.Lock.Inspect(services.DemoKey)
	if err != nil {
		return err
	}
	steps, err := l.trail.Newest(ctx)
	if err != nil {
		return err
	}
	info := ctx.Lock.Info()
	p := LocksPage{
		Title: ctx.T("locks.title"), Done: notice,
		DriverInfo: driverInfo(ctx, info.Name, info.Scope, ctx.App.LockReason, info.Warnings),
		Holders:    state.Holders, Waiters: state.Waiters, Steps: steps, In: in, Race: race,
	}
	if err := mayStrike(ctx); err != nil {
		p.Strike = err.key
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.HTML(http.StatusOK, "locks", p)
}

// lockNotice returns the notice for the redirect of an action.
func lockNotice(ctx *mega.Ctx) string {
	switch done := ctx.Query("done"); done {
	case "asked", "forced", "ordered", "struck":
		return ctx.T("locks.done." + done)
	}
	return ""
}

// RaceInput describes a race.
type RaceInput struct {
	Buyers int    `json:"buyers"`
	Work   int    `json:"work"` // milliseconds
	Way    string `json:"way"`
}

func newRaceInput() RaceInput { return RaceInput{Buyers: 40, Work: 10, Way: services.RaceLock} }

// The bounds of a race. The longest one takes 10 s.
const (
	maxBuyers = 200
	maxWork   = 50
)

// Validate reports invalid fields.
func (in *RaceInput) Validate(ctx *mega.Ctx) error {
	wrong := mega.FieldErrors{}
	within(ctx, wrong, "buyers", in.Buyers, 2, maxBuyers)
	within(ctx, wrong, "work", in.Work, 0, maxWork)
	return among(ctx, wrong, "way", in.Way, services.RaceLock, services.RaceNone, services.RaceFIFO).Or()
}

// Race has buyers of all processes compete for one product, and shows the result.
func (l *Locks) Race(ctx *mega.Ctx) error {
	in := newRaceInput()
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	result, err := services.Race(ctx, in.Buyers, time.Duration(in.Work)*time.Millisecond, in.Way)
	if err != nil {
		return err
	}
	return l.show(ctx, "", in, result)
}

// HoldInput describes a holder of the demo lock.
type HoldInput struct {
	Seconds int `json:"seconds"`
}

// maxHold bounds the time of a holder, in seconds.
const maxHold = 120

// Validate reports an invalid time.
func (in *HoldInput) Validate(ctx *mega.Ctx) error {
	return within(ctx, mega.FieldErrors{}, "seconds", in.Seconds, 1, maxHold).Or()
}

// Hold holds the demo lock in the background, which outlives the request.
func (l *Locks) Hold(ctx *mega.Ctx) error {
	in := HoldInput{Seconds: 10}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	span := time.Duration(in.Seconds) * time.Second
	l.demo.Hold(ctx, span, fmt.Sprintf("%d s", in.Seconds))
	return accepted(ctx, in, "asked")
}

// accepted answers an action whose result the page shows later.
func accepted(ctx *mega.Ctx, v any, done string) error {
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusAccepted, v)
	}
	return ctx.Redirect(http.StatusSeeOther, "/locks?done="+done)
}

// Try takes the demo lock without waiting, and gives it back at once.
func (l *Locks) Try(ctx *mega.Ctx) error {
	lease, err := ctx.Lock.TryAcquire(services.DemoKey)
	if busy, ok := errors.AsType[*lock.NotAcquiredError](err); ok && !ctx.WantsJSON() {
		return l.show(ctx, ctx.T("locks.busy", "holders", holderNames(busy.Holders)), newRaceInput(), nil)
	}
	if err != nil {
		return err
	}
	fence := lease.Fence()
	if err := lease.Release(); err != nil {
		return err
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, map[string]uint64{"fence": fence})
	}
	return l.show(ctx, ctx.T("locks.free", "fence", fence), newRaceInput(), nil)
}

func holderNames(holders []lock.Holding) string {
	names := make([]string, len(holders))
	for i, h := range holders {
		names[i] = h.Holder.String()
	}
	return strings.Join(names, ", ")
}

// ForceInput is the reason of a forced release.
type ForceInput struct {
	Reason string `json:"reason"`
}

// Validate reports a missing reason.
func (in *ForceInput) Validate(ctx *mega.Ctx) error {
	if in.Reason = strings.TrimSpace(in.Reason); in.Reason == "" || len(in.Reason) > lock.MaxReason {
		return mega.FieldErrors{"reason": ctx.T("locks.wrong.reason", "high", lock.MaxReason)}
	}
	return nil
}

// Force takes the demo lock from its holder.
func (l *Locks) Force(ctx *mega.Ctx) error {
	var in ForceInput
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	released, err := ctx.Lock.ForceRelease(services.DemoKey, in.Reason)
	switch {
	case err != nil:
		return err
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusOK, map[string]int{"released": released})
	case released == 0:
		return l.show(ctx, ctx.T("locks.nobody"), newRaceInput(), nil)
	}
	return ctx.Redirect(http.StatusSeeOther, "/locks?done=forced")
}

var errNotHeld = mega.Error(http.StatusConflict, "demo.not_held", "locks.nobody")

// holder returns the holder of the demo lock.
func (l *Locks) holder(ctx *mega.Ctx) (lock.Holding, error) {
	state, err := ctx.Lock.Inspect(services.DemoKey)
	if err == nil && len(state.Holders) == 0 {
		err = errNotHeld
	}
	if err != nil {
		return lock.Holding{}, err
	}
	return state.Holders[0], nil
}

// Order orders the holder to extend its lease, or to release it.
func (l *Locks) Order(do string) mega.Handler {
	return func(ctx *mega.Ctx) error {
		h, err := l.holder(ctx)
		if err != nil {
			return l.refused(ctx, err)
		}
		order := services.HoldOrder{Fence: h.Fence, Do: do}
		if err := mega.Publish(ctx, services.HoldOrders, order); err != nil {
			return err
		}
		return accepted(ctx, order, "ordered")
	}
}

// refused shows the page with the reason why nothing was done.
func (l *Locks) refused(ctx *mega.Ctx, err error) error {
	if ctx.WantsJSON() || !errors.Is(err, errNotHeld) {
		return err
	}
	return l.show(ctx, ctx.T("locks.nobody"), newRaceInput(), nil)
}

// Strike kills or freezes the process of the holder.
func (l *Locks) Strike(do string) mega.Handler {
	return func(ctx *mega.Ctx) error {
		if err := mayStrike(ctx); err != nil {
			return err.answer()
		}
		h, err := l.holder(ctx)
		if err != nil {
			return l.refused(ctx, err)
		}
		if h.Worker == 0 {
			return (&noStrike{http.StatusConflict, "demo.no_workers", "locks.no_workers"}).answer()
		}
		strike := services.Strike{Fence: h.Fence, Host: h.Host, PID: h.PID, Do: do}
		if err := mega.Publish(ctx, services.Strikes, strike); err != nil {
			return err
		}
		return accepted(ctx, strike, "struck")
	}
}

// noStrike is why no process is killed or frozen.
type noStrike struct {
	status    int
	code, key string
}

func (n *noStrike) answer() error { return mega.Error(n.status, n.code, n.key) }

// mayStrike returns why this client may not kill or freeze processes, or nil.
func mayStrike(ctx *mega.Ctx) *noStrike {
	local, _ := ctx.Request().Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch {
	case ctx.App.Env != "dev":
		return &noStrike{http.StatusForbidden, "demo.only_in_dev", "locks.only_in_dev"}
	case local == nil || !isLoopback(local.String()) || !isLoopback(ctx.Request().RemoteAddr):
		return &noStrike{http.StatusForbidden, "demo.only_on_loopback", "locks.only_on_loopback"}
	}
	return nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
