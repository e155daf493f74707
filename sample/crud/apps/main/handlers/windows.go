package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/limit"
)

// Windows shows the promises of the limits, on a key of its own.
type Windows struct{ partner limit.Limit }

// NewWindows returns the handlers of the page.
func NewWindows() *Windows {
	return &Windows{limit.Limit{Rates: []limit.Rate{{N: 5, Per: 800 * time.Millisecond}}}}
}

// partnerKey is the limit of the page.
const partnerKey = "demo:partner"

// longestTurn bounds the wait of one call.
const longestTurn = 5 * time.Second

// WindowsPage is the data of the page, and of its JSON.
type WindowsPage struct {
	Title string `json:"-"`

	DriverInfo
	N        int            `json:"n"`
	Per      int64          `json:"per"` // milliseconds
	Used     int            `json:"used"`
	NextFree int64          `json:"next_free"` // milliseconds
	Waiting  int            `json:"waiting"`   // processes
	Result   *WindowsResult `json:"result,omitempty"`
}

// WindowsResult is the outcome of some calls.
type WindowsResult struct {
	Way        string  `json:"way"`
	Allowed    int     `json:"allowed"`
	Refused    int     `json:"refused"`
	RetryAfter int64   `json:"retry_after"` // milliseconds, of the last refusal
	At         []int64 `json:"at"`          // of the calls that waited: milliseconds after the first grant
}

// List shows the use of the limit.
func (w *Windows) List(ctx *mega.Ctx) error { return w.show(ctx, nil) }

func (w *Windows) show(ctx *mega.Ctx, result *WindowsResult) error {
	state, err := ctx.Limit.Peek(partnerKey, w.partner)
	if err != nil {
		return err
	}
	info, rate := ctx.Limit.Info(), state.Rates[0]
	p := WindowsPage{
		Title: ctx.T("windows.title"), DriverInfo: driverInfo(ctx, info.Name, info.Scope, ctx.App.LimitReason, info.Warnings),
		N: rate.N, Per: rate.Per.Milliseconds(), Used: rate.Used, NextFree: rate.NextFree.Milliseconds(), Waiting: len(state.Waiters),
		Result: result,
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, p)
	}
	return ctx.HTML(http.StatusOK, "windows", p)
}

// CallsInput describes calls to the partner.
type CallsInput struct {
	Calls int    `json:"calls"`
	Way   string `json:"way"`
}

// The ways of a call.
const (
	askOnce  = "ask"
	waitTurn = "wait"
)

const maxCalls = 20

// Validate reports invalid fields.
func (in *CallsInput) Validate(ctx *mega.Ctx) error {
	wrong := within(ctx, mega.FieldErrors{}, "calls", in.Calls, 1, maxCalls)
	return among(ctx, wrong, "way", in.Way, askOnce, waitTurn).Or()
}

// Call makes calls, one after the other, and shows which were allowed.
func (w *Windows) Call(ctx *mega.Ctx) error {
	in := CallsInput{Calls: 8, Way: askOnce}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	one := w.ask
	if in.Way == waitTurn {
		one = w.turn()
	}
	result := &WindowsResult{Way: in.Way, At: []int64{}}
	for range in.Calls {
		if err := one(ctx, result); err != nil {
			return err
		}
	}
	return w.show(ctx, result)
}

// ask makes a call if it is allowed now.
func (w *Windows) ask(ctx *mega.Ctx, result *WindowsResult) error {
	r, err := ctx.Limit.Allow(partnerKey, w.partner)
	switch {
	case err != nil:
		return err
	case r.Allowed:
		result.Allowed++
	default:
		result.Refused++
		result.RetryAfter = r.RetryAfter.Milliseconds()
	}
	return nil
}

// turn returns a function that makes a call when it is allowed.
func (w *Windows) turn() func(*mega.Ctx, *WindowsResult) error {
	var first time.Time
	return func(ctx *mega.Ctx, result *WindowsResult) error {
		permit, err := ctx.Limit.Wait(partnerKey, w.partner, limit.MaxWait(longestTurn))
		if late, ok := errors.AsType[*limit.LimitedError](err); ok && ctx.Err() == nil {
			result.Refused++
			result.RetryAfter = late.RetryAfter.Milliseconds()
			return nil
		}
		if err != nil {
			return err
		}
		if first.IsZero() {
			first = permit.At()
		}
		result.Allowed++
		result.At = append(result.At, permit.At().Sub(first).Milliseconds())
		return nil
	}
}

// Live streams the limit: "changed" when its use changes, in any process of the
// scope, and "left" with the time until a call is allowed.
func (w *Windows) Live(ctx *mega.Ctx) error {
	return ctx.SSE(func(s *mega.Stream) error {
		tick := time.NewTicker(lookInterval)
		defer tick.Stop()
		alive := time.NewTicker(aliveInterval)
		defer alive.Stop()
		for shown, counting := "", false; ; {
			state, err := s.Limit.Peek(partnerKey, w.partner)
			if err != nil {
				return err
			}
			rate := state.Rates[0]
			if now := fmt.Sprint(rate.Used, len(state.Waiters)); now != shown {
				err, shown = s.Send("changed", ""), now
			}
			if err == nil && (counting || rate.NextFree > 0) {
				err, counting = s.Send("left", map[string]int64{"millis": rate.NextFree.Milliseconds()}), rate.NextFree > 0
			}
			if err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-alive.C:
				if err := s.Send("alive", ""); err != nil {
					return err
				}
			case <-s.Done():
				return nil
			}
		}
	})
}
