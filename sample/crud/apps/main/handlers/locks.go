package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
)

// Locks shows what the locks promise, on a key of its own.
type Locks struct{}

// NewLocks returns the handlers of the page.
func NewLocks() *Locks { return &Locks{} }

// demoKey is the lock that the page holds, tries and forces.
const demoKey = "demo"

// LocksPage is the data of the page, and of its JSON.
type LocksPage struct {
	Title string `json:"-"`
	Done  string `json:"-"` // what the page's last action did

	Driver   string               `json:"driver"`
	Scope    string               `json:"scope"`
	Warnings []string             `json:"warnings,omitempty"`
	Holders  []lock.Holding       `json:"holders"`
	Waiters  []lock.Holder        `json:"waiters"`
	Race     *services.RaceResult `json:"race,omitempty"`
}

// List shows the holder and the waiters of the demo lock.
func (l *Locks) List(ctx *mega.Ctx) error { return l.show(ctx, lockNotice(ctx), nil) }

func (l *Locks) show(ctx *mega.Ctx, notice string, race *services.RaceResult) error {
	state, err := ctx.Lock.Inspect(demoKey)
	if err != nil {
		return err
	}
	info := ctx.Lock.Info()
	p := LocksPage{
		Title: "Locks", Done: notice, Driver: info.Name, Scope: info.Scope.String(), Warnings: info.Warnings,
		Holders: state.Holders, Waiters: state.Waiters, Race: race,
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.HTML(http.StatusOK, "locks", p)
}

// lockNotice returns the notice for the redirect of an action.
func lockNotice(ctx *mega.Ctx) string {
	switch ctx.Query("done") {
	case "asked":
		return "The lock is held, or its waiter is in the queue."
	case "forced":
		return "The lock was taken from its holder. The next waiter has it."
	}
	return ""
}

// RaceInput describes a race.
type RaceInput struct {
	Buyers int    `json:"buyers"`
	Way    string `json:"way"`
}

// maxBuyers bounds the buyers of a race.
const maxBuyers = 200

// Validate reports invalid fields.
func (in *RaceInput) Validate() error {
	wrong := mega.FieldErrors{}
	if in.Buyers < 2 || in.Buyers > maxBuyers {
		wrong["buyers"] = fmt.Sprintf("has to be 2 to %d", maxBuyers)
	}
	if in.Way != services.RaceLock && in.Way != services.RaceNone && in.Way != services.RaceFIFO {
		wrong["way"] = fmt.Sprintf("has to be %s, %s or %s", services.RaceLock, services.RaceNone, services.RaceFIFO)
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

// Race has buyers of this process compete for one product, and shows the result.
func (l *Locks) Race(ctx *mega.Ctx) error {
	in := RaceInput{Buyers: 40, Way: services.RaceLock}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	result, err := services.Race(ctx, in.Buyers, in.Way)
	if err != nil {
		return err
	}
	return l.show(ctx, "", result)
}

// HoldInput describes a holder of the demo lock.
type HoldInput struct {
	Seconds int `json:"seconds"`
}

// maxHold bounds the time of a holder, in seconds.
const maxHold = 120

// Validate reports an invalid time.
func (in *HoldInput) Validate() error {
	if in.Seconds < 1 || in.Seconds > maxHold {
		return mega.FieldErrors{"seconds": fmt.Sprintf("has to be 1 to %d", maxHold)}
	}
	return nil
}

// Hold holds the demo lock in the background, which outlives the request.
func (l *Locks) Hold(ctx *mega.Ctx) error {
	in := HoldInput{Seconds: 10}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	ctx.Go("hold the demo lock", func(ctx *mega.Ctx) error {
		return ctx.Lock.With(demoKey, func(ctx *mega.Ctx) error {
			select {
			case <-time.After(time.Duration(in.Seconds) * time.Second):
				return nil
			case <-ctx.Done(): // the lock was lost
				return nil
			}
		}, lock.Label(fmt.Sprintf("%d s", in.Seconds)), lock.Wait(services.JobWait))
	})
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusAccepted, in)
	}
	return ctx.Redirect(http.StatusSeeOther, "/locks?done=asked")
}

// Try takes the demo lock without waiting, and gives it back at once.
func (l *Locks) Try(ctx *mega.Ctx) error {
	lease, err := ctx.Lock.TryAcquire(demoKey)
	if busy, ok := errors.AsType[*lock.NotAcquiredError](err); ok && !ctx.WantsJSON() {
		return l.show(ctx, "Busy. It is held by "+holderNames(busy.Holders)+".", nil)
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
	return l.show(ctx, fmt.Sprintf("Free. It was taken with fence %d and released.", fence), nil)
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
func (in *ForceInput) Validate() error {
	if in.Reason = strings.TrimSpace(in.Reason); in.Reason == "" || len(in.Reason) > lock.MaxReason {
		return mega.FieldErrors{"reason": fmt.Sprintf("has to have 1 to %d bytes", lock.MaxReason)}
	}
	return nil
}

// Force takes the demo lock from its holder.
func (l *Locks) Force(ctx *mega.Ctx) error {
	var in ForceInput
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	released, err := ctx.Lock.ForceRelease(demoKey, in.Reason)
	switch {
	case err != nil:
		return err
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusOK, map[string]int{"released": released})
	case released == 0:
		return l.show(ctx, "Nobody held it.", nil)
	}
	return ctx.Redirect(http.StatusSeeOther, "/locks?done=forced")
}
