package handlers

import (
	"errors"
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
	Done  string  `json:"-"` // the outcome of the last action on the page
	Kills bool    `json:"-"` // a job may kill its worker
	Form  jobForm `json:"-"`

	Driver    string           `json:"driver"`
	Scope     string           `json:"scope"`
	Tally     lock.Tally       `json:"pool"`
	Waiting   int              `json:"waiting"`
	Sandboxes []SandboxState   `json:"sandboxes"`
	Events    []store.JobEvent `json:"events"` // the newest first
}

// SandboxState is a slot of the pool.
type SandboxState struct {
	lock.SlotState
	Fence uint64 `json:"fence,omitempty"` // of the job that holds it
}

// jobForm is a job as the user typed it, with its errors.
type jobForm struct {
	Seconds, End string
	Errors       mega.FieldErrors
}

// List shows the sandboxes and what has happened in them.
func (b *Sandboxes) List(ctx *mega.Ctx) error {
	return b.show(ctx, http.StatusOK, jobForm{Seconds: "5"})
}

func (b *Sandboxes) show(ctx *mega.Ctx, status int, f jobForm) error {
	state, err := b.sandboxes.State(ctx)
	if err != nil {
		return err
	}
	events, err := b.journal.Newest(ctx)
	if err != nil {
		return err
	}
	for i, e := range events {
		events[i].Text = ctx.T("job."+e.Event, e.Details...)
	}
	info := ctx.Lock.Info()
	p := SandboxesPage{
		Done: done(ctx), Kills: mayStrike(ctx) == nil, Form: f, Driver: info.Name, Scope: info.Scope.String(),
		Tally: state.Tally(), Waiting: len(state.Waiters), Events: events,
	}
	fences := map[int]uint64{}
	for _, h := range state.Holders {
		fences[h.Slot] = h.Fence
	}
	for _, s := range state.Slots {
		p.Sandboxes = append(p.Sandboxes, SandboxState{s, fences[s.Number]})
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.HTML(status, "sandboxes", p)
}

// JobInput describes a job.
type JobInput struct {
	Seconds int    `json:"seconds"`
	End     string `json:"end"`
}

// maxSeconds bounds the time of a job.
const maxSeconds = 120

// Validate reports invalid fields.
func (in *JobInput) Validate(ctx *mega.Ctx) error {
	wrong := within(ctx, mega.FieldErrors{}, "seconds", in.Seconds, 0, maxSeconds)
	return among(ctx, wrong, "end", in.End, services.EndsWell, services.EndsBroken, services.EndsKilled).Or()
}

// Start starts a job in the background, which outlives the request.
func (b *Sandboxes) Start(ctx *mega.Ctx) error {
	in := JobInput{End: services.EndsWell}
	if err := ctx.Bind(&in); err != nil {
		return b.refuse(ctx, err)
	}
	if in.End == services.EndsKilled {
		if no := mayStrike(ctx); no != nil {
			return no.answer()
		}
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

// refuse shows the form of a job again with its errors.
func (b *Sandboxes) refuse(ctx *mega.Ctx, err error) error {
	sent := ctx.Request().PostForm
	f := jobForm{Seconds: sent.Get("seconds"), End: sent.Get("end")}
	if ctx.WantsJSON() || !errors.As(err, &f.Errors) {
		return err
	}
	return b.show(ctx, http.StatusUnprocessableEntity, f)
}

// FreeInput names the job that the page showed.
type FreeInput struct {
	Fence uint64 `json:"fence"` // 0 for any job
}

// Free takes a sandbox from its job by force. The next holder cleans it.
func (b *Sandboxes) Free(ctx *mega.Ctx) error {
	number, err := sandboxNumber(ctx)
	if err != nil {
		return err
	}
	var in FreeInput
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	freed, err := b.sandboxes.Free(ctx, number, in.Fence)
	switch {
	case err != nil:
		return err
	case freed == 0:
		return b.changed(ctx, "over")
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
	switch ctx.Query("done") {
	case "freed":
		return ctx.T("sandboxes.freed")
	case "over":
		return ctx.T("sandboxes.over")
	case "healed":
		return ctx.T("sandboxes.healed")
	}
	if job, err := strconv.ParseInt(ctx.Query("started"), 10, 64); err == nil { // another text is not ours
		return ctx.T("sandboxes.started", "job", strconv.FormatInt(job, 10))
	}
	return ""
}

// Why returns the key of the text that says why the sandbox is dirty.
func (s SandboxState) Why() string {
	switch s.Reason {
	case lock.LeftUnknown, lock.LeftDied, lock.LeftExpired, lock.LeftForced, lock.LeftHealed:
		return "sandboxes.left." + s.Reason
	}
	return "sandboxes.left.unclean"
}

// Rest returns the rest of a resting sandbox.
func (s SandboxState) Rest() time.Duration {
	return max(time.Until(s.Until).Round(100*time.Millisecond), 0)
}
