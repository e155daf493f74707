package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/limit"
)

// LimitListing is the limits in use whose keys begin with a prefix, sorted by
// key.
type LimitListing struct {
	Limits    []LimitEntry `json:"limits"`
	Total     int          `json:"total"`
	Truncated bool         `json:"truncated"` // there are more limits than Limits contains
}

// LimitEntry is one limit, with its first waiters and their total number.
type LimitEntry struct {
	limit.State
	Waiting int `json:"waiting"`
}

// limitStateView is a limit.State with its durations as text.
type limitStateView struct {
	LimitEntry
	Rates   []rateView      `json:"rates"`
	Waiters []limit.Waiter  `json:"waiters"`
	Paused  *limitPauseView `json:"paused,omitempty"`
}

type rateView struct {
	limit.RateState
	PerText      string `json:"per_text"`
	NextFreeText string `json:"next_free_text"`
}

type limitPauseView struct {
	limit.Pause
	LeftText string `json:"left_text"`
}

func newLimitStateView(s limit.State, shown int) limitStateView {
	v := limitStateView{
		LimitEntry: LimitEntry{s, len(s.Waiters)}, Rates: []rateView{},
		Waiters: append([]limit.Waiter{}, s.Waiters[:min(len(s.Waiters), shown)]...),
	}
	for _, r := range s.Rates {
		v.Rates = append(v.Rates, rateView{r, r.Per.String(), r.NextFree.Round(time.Millisecond).String()})
	}
	if s.Paused != nil {
		v.Paused = &limitPauseView{*s.Paused, s.Paused.Left.Round(time.Millisecond).String()}
	}
	return v
}

// limitStatsView is limit.Stats with the bounds of its histogram.
type limitStatsView struct {
	limit.Stats
	Wait histogramView `json:"wait"`
}

func (v views) limits(w http.ResponseWriter, r *http.Request) {
	v.listing(w, r, func(prefix string, most int) {
		states, err := v.process.Limits.List(r.Context(), prefix)
		if err != nil {
			fail(w, err)
			return
		}
		out := struct {
			Limits    []limitStateView `json:"limits"`
			Total     int              `json:"total"`
			Truncated bool             `json:"truncated"`
		}{[]limitStateView{}, len(states), len(states) > most}
		for _, s := range states[:min(len(states), most)] {
			out.Limits = append(out.Limits, newLimitStateView(s, shownWaiters))
		}
		answer(w, http.StatusOK, out)
	})
}

func (v views) limit(w http.ResponseWriter, r *http.Request) {
	state, err := v.process.Limits.Inspect(r.Context(), r.FormValue("key"))
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, newLimitStateView(state, maxWaiters))
}

func (v views) limitStats(w http.ResponseWriter, _ *http.Request) {
	s := v.process.Limits.Stats()
	answer(w, http.StatusOK, limitStatsView{s, newHistogramView(s.Wait)})
}

// The parameters of the verbs of limits.
type (
	pauseRequest struct {
		Key    string        `json:"key"`
		For    time.Duration `json:"for"`
		Reason string        `json:"reason"`
	}
	resetRequest struct {
		Key string `json:"key"`
	}
)

func (d operations) pauseLimit(w http.ResponseWriter, r *http.Request) {
	var in pauseRequest
	if !read(w, r, &in) {
		return
	}
	if strings.TrimSpace(in.Reason) == "" {
		refuse(w, http.StatusBadRequest, "request.invalid", errors.New("a pause needs a reason; the callers that are refused receive it"))
		return
	}
	if err := d.process.Limits.Pause(r.Context(), in.Key, in.For, in.Reason); err != nil {
		fail(w, err)
		return
	}
	logChange(d.process.Log, r, "admin: limit paused", slog.String("key", in.Key), slog.Duration("for", in.For), slog.String("reason", in.Reason))
	answer(w, http.StatusOK, struct{}{})
}

func (d operations) resetLimit(w http.ResponseWriter, r *http.Request) {
	var in resetRequest
	if !read(w, r, &in) {
		return
	}
	if err := d.process.Limits.Reset(r.Context(), in.Key); err != nil {
		fail(w, err)
		return
	}
	logChange(d.process.Log, r, "admin: limit reset", slog.String("key", in.Key))
	answer(w, http.StatusOK, struct{}{})
}

// Limits returns the limits in use whose keys begin with prefix, at most most.
func (c *Client) Limits(ctx context.Context, prefix string, most int) (LimitListing, error) {
	q := url.Values{"prefix": {prefix}, "limit": {strconv.Itoa(most)}}
	return get[LimitListing](ctx, c, "/limits?"+q.Encode())
}

// Limit returns the state of key.
func (c *Client) Limit(ctx context.Context, key string) (LimitEntry, error) {
	return get[LimitEntry](ctx, c, "/limit?"+url.Values{"key": {key}}.Encode())
}

// PauseLimit refuses all calls for key for the time d.
func (c *Client) PauseLimit(ctx context.Context, key string, d time.Duration, reason string) error {
	if err := checkKey("limit", key); err != nil {
		return err
	}
	return c.post(ctx, "/limit/pause", pauseRequest{key, d, reason}, nil)
}

// ResetLimit makes all units of key free and ends its pause.
func (c *Client) ResetLimit(ctx context.Context, key string) error {
	if err := checkKey("limit", key); err != nil {
		return err
	}
	return c.post(ctx, "/limit/reset", resetRequest{key}, nil)
}
