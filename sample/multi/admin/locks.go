package admin

import (
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
)

// Locks answers with the locks, their holders and their waiters.
func (h *Handlers) Locks(ctx *mega.Ctx) error {
	states, err := ctx.Lock.List(ctx.Query("prefix"))
	if err != nil {
		return err
	}
	return ctx.JSON(http.StatusOK, states)
}

// look is the interval between two looks at the locks for a page.
const look = 250 * time.Millisecond

// Live streams the locks after each change while the page is open.
func (h *Handlers) Live(ctx *mega.Ctx) error {
	return ctx.SSE(func(s *mega.Stream) error {
		tick := time.NewTicker(look)
		defer tick.Stop()
		var shown []row
		for first := true; ; first = false {
			rows, err := h.rows(ctx)
			if err != nil {
				return err
			}
			if first || !reflect.DeepEqual(rows, shown) {
				if err := s.Send("locks", rows); err != nil {
					return err
				}
				shown = rows
			}
			select {
			case <-tick.C:
			case <-s.Done():
				return nil
			}
		}
	})
}

// row is a lock on the page.
type row struct {
	Key     string   `json:"key"`
	Holders []string `json:"holders"`
	Waiting int      `json:"waiting"`
}

func (h *Handlers) rows(ctx *mega.Ctx) ([]row, error) {
	states, err := ctx.Lock.List("")
	if err != nil {
		return nil, err
	}
	rows := []row{}
	for _, s := range states {
		r := row{Key: s.Key, Holders: []string{}, Waiting: len(s.Waiters)}
		for _, by := range s.Holders {
			process := fmt.Sprintf("pid %d", by.PID)
			if by.Worker != 0 {
				process = fmt.Sprintf("worker %d, %s", by.Worker, process)
			}
			r.Holders = append(r.Holders, fmt.Sprintf("%s: %s (%s)", by.App, by.Label, process))
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// ReleaseInput is a forced release with its reason.
type ReleaseInput struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// Validate reports the missing fields.
func (in *ReleaseInput) Validate() error {
	wrong := mega.FieldErrors{}
	if in.Key == "" {
		wrong["key"] = "is required"
	}
	switch {
	case in.Reason == "":
		wrong["reason"] = "is required: the holder that loses the lock receives it"
	case len(in.Reason) > lock.MaxReason:
		wrong["reason"] = fmt.Sprintf("has more than %d bytes", lock.MaxReason)
	}
	return wrong.Or()
}

// Release releases a lock by force. The contexts of its holders end, and the
// next waiter gets the lock.
func (h *Handlers) Release(ctx *mega.Ctx) error {
	var in ReleaseInput
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	n, err := ctx.Lock.ForceRelease(in.Key, in.Reason)
	if err != nil {
		return err
	}
	return done(ctx, map[string]int{"released": n}, fmt.Sprintf("%s: %d released.", in.Key, n))
}
