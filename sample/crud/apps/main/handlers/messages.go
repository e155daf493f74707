package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
)

// Messages shows the promises of the bus, on subjects of its own.
type Messages struct{ messages *services.Messages }

// NewMessages returns the handlers of the page.
func NewMessages(m *services.Messages) *Messages { return &Messages{m} }

// MessagesPage is the data of the page, and of its JSON.
type MessagesPage struct {
	Title string `json:"-"`
	Done  string `json:"-"` // the result of the page's last action

	DriverInfo
	Notes  []services.Note      `json:"notes"` // that this process received, the newest first
	Batch  services.Batch       `json:"batch"`
	Answer *RequestResult       `json:"answer,omitempty"`
	Slow   *services.SlowResult `json:"slow,omitempty"`
}

// RequestResult is the outcome of a request over the bus.
type RequestResult struct {
	Subject string  `json:"subject"`
	Millis  float64 `json:"millis"`
	PID     int     `json:"pid,omitempty"` // of the responder
	Status  int     `json:"status"`
	Code    string  `json:"code,omitempty"` // of the error
}

// List shows the messages that this process received.
func (m *Messages) List(ctx *mega.Ctx) error {
	done := ""
	switch how := ctx.Query("done"); how {
	case "published", "shared":
		done = ctx.T("bus.done." + how)
	}
	return m.show(ctx, http.StatusOK, MessagesPage{Done: done})
}

// show answers with the page, or with its JSON.
func (m *Messages) show(ctx *mega.Ctx, status int, p MessagesPage) error {
	info := ctx.Bus.Info()
	p.Title, p.DriverInfo = ctx.T("bus.title"), driverInfo(ctx, info.Name, info.Scope, ctx.App.BusReason, info.Warnings)
	p.Notes, p.Batch = m.messages.Received()
	if ctx.WantsJSON() {
		return ctx.JSON(status, p)
	}
	return ctx.HTML(status, "bus", p)
}

// NoteInput is the text of a note.
type NoteInput struct {
	Text string `json:"text"`
}

// maxNote bounds a text, in characters.
const maxNote = 200

// Validate reports an invalid text.
func (in *NoteInput) Validate(ctx *mega.Ctx) error {
	if in.Text = strings.TrimSpace(in.Text); in.Text == "" || len([]rune(in.Text)) > maxNote {
		return mega.FieldErrors{"text": ctx.T("bus.wrong.text", "high", maxNote)}
	}
	return nil
}

// Publish publishes a note.
func (m *Messages) Publish(ctx *mega.Ctx) error {
	var in NoteInput
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	note, err := m.messages.Publish(ctx, in.Text)
	switch {
	case err != nil:
		return err
	case ctx.WantsJSON():
		return ctx.JSON(http.StatusAccepted, note)
	}
	return ctx.Redirect(http.StatusSeeOther, "/bus?done=published")
}

// JobsInput is the number of jobs of a batch.
type JobsInput struct {
	Jobs int `json:"jobs"`
}

const maxJobs = 100

// Validate reports an invalid number.
func (in *JobsInput) Validate(ctx *mega.Ctx) error {
	return within(ctx, mega.FieldErrors{}, "jobs", in.Jobs, 1, maxJobs).Or()
}

// Share publishes jobs, each for one worker of the group.
func (m *Messages) Share(ctx *mega.Ctx) error {
	in := JobsInput{Jobs: 24}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	if err := m.messages.Share(ctx, in.Jobs); err != nil {
		return err
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusAccepted, in)
	}
	return ctx.Redirect(http.StatusSeeOther, "/bus?done=shared")
}

// RequestInput is the subject of a request.
type RequestInput struct {
	Subject string `json:"subject"`
}

// Validate reports a subject that is not of this page.
func (in *RequestInput) Validate(ctx *mega.Ctx) error {
	return among(ctx, mega.FieldErrors{}, "subject", in.Subject, services.EchoOf, services.NobodyOf).Or()
}

// Request sends a request over the bus and shows the answer with its time. JSON
// clients have the time in the header Server-Timing, and an error as the answer.
func (m *Messages) Request(ctx *mega.Ctx) error {
	in := RequestInput{Subject: services.EchoOf}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	began := time.Now()
	answer, err := mega.Call[services.Echo, services.Echo](ctx, in.Subject, services.Echo{Text: "hello"})
	r := &RequestResult{Subject: in.Subject, Millis: float64(time.Since(began).Microseconds()) / 1000, PID: answer.PID, Status: http.StatusOK}
	ctx.Writer().Header().Set("Server-Timing", fmt.Sprintf("bus;dur=%.3f", r.Millis))
	switch nobody := errors.Is(err, bus.ErrNoResponders); {
	case nobody && !ctx.WantsJSON():
		r.Status, r.Code = http.StatusBadGateway, bus.ErrNoResponders.Code()
	case err != nil:
		return err
	}
	return m.show(ctx, r.Status, MessagesPage{Answer: r})
}

// SlowInput is the number of messages for the slow subscriber.
type SlowInput struct {
	Messages int `json:"messages"`
}

const maxSlow = 2000

// Validate reports an invalid number.
func (in *SlowInput) Validate(ctx *mega.Ctx) error {
	return within(ctx, mega.FieldErrors{}, "messages", in.Messages, 1, maxSlow).Or()
}

// Slow publishes messages to a subscriber that is slower, and shows its gaps.
func (m *Messages) Slow(ctx *mega.Ctx) error {
	in := SlowInput{Messages: 500}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	result, err := m.messages.Slow(ctx, in.Messages)
	if err != nil {
		return err
	}
	return m.show(ctx, http.StatusOK, MessagesPage{Slow: result})
}
