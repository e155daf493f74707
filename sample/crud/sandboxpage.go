package main

import (
	"net/http"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
)

// sandboxPage is the data of the page, and of its JSON.
type sandboxPage struct {
	Title string `json:"-"`
	Done  string `json:"-"` // what the page's last action did

	Driver    string         `json:"driver"`
	Scope     string         `json:"scope"`
	Tally     lock.Tally     `json:"pool"`
	Waiting   int            `json:"waiting"`
	Sandboxes []sandboxState `json:"sandboxes"`
	Events    []JobEvent     `json:"events"` // the newest first
}

// sandboxState is a slot of the pool.
type sandboxState struct{ lock.SlotState }

// List shows the sandboxes and what has happened in them.
func (b *Sandboxes) List(ctx *mega.Ctx) error {
	state, err := ctx.Lock.Inspect(b.pool.Key)
	if err != nil {
		return err
	}
	events, err := b.journal.Newest(ctx)
	if err != nil {
		return err
	}
	if state.Slots == nil { // nobody has used the pool for a while
		state = unusedPool(state)
	}
	info := ctx.Lock.Info()
	p := sandboxPage{
		Title: "Sandboxes", Done: done(ctx), Driver: info.Name, Scope: info.Scope.String(),
		Tally: state.Tally(), Waiting: len(state.Waiters), Events: events,
	}
	for _, s := range state.Slots {
		p.Sandboxes = append(p.Sandboxes, sandboxState{s})
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.HTML(http.StatusOK, "sandboxes", p)
}

// unusedPool is the state of a pool of which the backend knows nothing.
func unusedPool(s lock.State) lock.State {
	s.Size = sandboxCount
	for i := range sandboxCount {
		s.Slots = append(s.Slots, lock.SlotState{Number: i, Status: lock.SlotDirty, Reason: lock.LeftUnknown})
	}
	return s
}

// done returns the notice for the redirect of an action.
func done(ctx *mega.Ctx) string {
	switch how := ctx.Query("done"); {
	case how == "freed":
		return "The sandbox was taken from its job. Its next holder cleans it."
	case how == "healed":
		return "The sandbox is in circulation again. Its next holder cleans it."
	case ctx.Query("started") != "":
		return "Job " + ctx.Query("started") + " was started."
	}
	return ""
}

// Why returns why the sandbox is dirty, as a sentence.
func (s sandboxState) Why() string {
	switch s.Reason {
	case lock.LeftUnknown:
		return "Nothing is known of it."
	case lock.LeftDied:
		return "The worker of its last job died."
	case lock.LeftExpired:
		return "The lease of its last job expired."
	case lock.LeftForced:
		return "It was taken from its last job."
	case lock.LeftHealed:
		return "It was healed."
	}
	return "Its last job did not hand it back clean."
}

// Rest returns the rest of a resting sandbox.
func (s sandboxState) Rest() time.Duration {
	return max(time.Until(s.Until).Round(100*time.Millisecond), 0)
}
