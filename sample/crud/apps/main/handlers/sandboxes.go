package handlers

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Sandboxes shows the sandboxes and starts jobs in them.
type Sandboxes struct {
	sandboxes *services.Sandboxes
	journal   *store.Journal
}

// NewSandboxes returns the handlers of the sandboxes.
func NewSandboxes(b *services.Sandboxes, journal *store.Journal) *Sandboxes {
	return &Sandboxes{b, journal}
}

// SandboxesPage is the data of the page, and of its JSON.
type SandboxesPage struct {
	Title string `json:"-"`
	Done  string `json:"-"` // what the page's last action did

	Driver    string           `json:"driver"`
	Scope     string           `json:"scope"`
	Tally     lock.Tally       `json:"pool"`
	Waiting   int              `json:"waiting"`
	Sandboxes []SandboxState   `json:"sandboxes"`
	Events    []store.JobEvent `json:"events"` // the newest first
}

// SandboxState is a slot of the pool.
type SandboxState struct{ lock.SlotState }

// List shows the sandboxes and what has happened in them.
func (b *Sandboxes) List(ctx *mega.Ctx) error {
	state, err := b.sandboxes.State(ctx)
	if err != nil {
		return err
	}
	events, err := b.journal.Newest(ctx)
	if err != nil {
		return err
	}
	info := ctx.Lock.Info()
	p := SandboxesPage{
		Title: "Sandboxes", Done: done(ctx), Driver: info.Name, Scope: info.Scope.String(),
		Tally: state.Tally(), Waiting: len(state.Waiters), Events: events,
	}
	for _, s := range state.Slots {
		p.Sandboxes = append(p.Sandboxes, SandboxState{s})
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.HTML(http.StatusOK, "sandboxes", p)
}

// JobInput describes a job.
type JobInput struct {
	Seconds int    `json:"seconds"`
	End     string `json:"end"`
}

// maxSeconds bounds the time of a job.
const maxSeconds = 120

// Validate reports invalid fields.
func (in *JobInput) Validate() error {
	wrong := mega.FieldErrors{}
	if in.Seconds < 0 || in.Seconds > maxSeconds {
		wrong["seconds"] = fmt.Sprintf("has to be 0 to %d", maxSeconds)
	}
	if in.End != services.EndsWell && in.End != services.EndsBroken && in.End != services.EndsKilled {
		wrong["end"] = fmt.Sprintf("has to be %s, %s or %s", services.EndsWell, services.EndsBroken, services.EndsKilled)
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

// Start starts a job in the background, which outlives the request.
func (b *Sandboxes) Start(ctx *mega.Ctx) error {
	in := JobInput{End: services.EndsWell}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	job, err := b.sandboxes.Start(ctx, in.Seconds, in.End)
	if err != nil {
		return err
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusAccepted, map[string]int64{"job": job})
	}
	return ctx.Redirect(http.StatusSeeOther, fmt.Sprintf("/sandboxes?started=%d", job))
}

// Free takes a sandbox from its job by force. The next holder cleans it.
func (b *Sandboxes) Free(ctx *mega.Ctx) error {
	number, err := sandboxNumber(ctx)
	if err != nil {
		return err
	}
	if err := b.sandboxes.Free(ctx, number); err != nil {
		return err
	}
	return b.changed(ctx, "freed")
}

// Heal repairs the folder of a withdrawn sandbox and puts it back into
// circulation. Nobody uses a withdrawn one.
func (b *Sandboxes) Heal(ctx *mega.Ctx) error {
	number, err := sandboxNumber(ctx)
	if err != nil {
		return err
	}
	if err := b.sandboxes.Heal(ctx, number); err != nil {
		return err
	}
	return b.changed(ctx, "healed")
}

func (b *Sandboxes) changed(ctx *mega.Ctx, how string) error {
	if ctx.WantsJSON() {
		return nil // without an error and without a body: 204
	}
	return ctx.Redirect(http.StatusSeeOther, "/sandboxes?done="+how)
}

var errNoSandbox = mega.Error(http.StatusNotFound, "sandbox.not_found", "problem.no_sandbox")

func sandboxNumber(ctx *mega.Ctx) (int, error) {
	number, err := strconv.Atoi(ctx.Param("number"))
	if err != nil || number < 0 || number >= services.SandboxCount {
		return 0, errNoSandbox
	}
	return number, nil
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
func (s SandboxState) Why() string {
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
func (s SandboxState) Rest() time.Duration {
	return max(time.Until(s.Until).Round(100*time.Millisecond), 0)
}
