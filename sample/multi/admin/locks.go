package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/multi/shop"
)

// Locks answers with the locks, their holders and their waiters.
func (h *Handlers) Locks(ctx *mega.Ctx) error {
	states, err := ctx.Lock.List(ctx.Query("prefix"))
	if err != nil {
		return err
	}
	return ctx.JSON(http.StatusOK, states)
}

// look is the interval between two looks at the locks for a page: drivers notify
// the waiters of a lock, not those who look on.
const look = 250 * time.Millisecond

// Live streams orders, refunds and stock as they change, by any process on the
// bus, and the number of products whose locks are in use after each change of these
// locks.
func (h *Handlers) Live(ctx *mega.Ctx) error {
	return ctx.SSE(func(s *mega.Stream) error {
		if err := shop.Watch(s); err != nil {
			return err
		}
		tick := time.NewTicker(look)
		defer tick.Stop()
		alive := time.NewTicker(shop.Alive)
		defer alive.Stop()
		var sent []who
		for {
			states, err := s.Lock.List(productLocks)
			if err != nil {
				return err
			}
			if now := whoIsWhere(states); sent == nil || !slices.Equal(now, sent) {
				if err := s.Send("locks", len(states)); err != nil {
					return err
				}
				sent = now
			}
			select {
			case <-tick.C:
			case <-alive.C:
				if err := shop.SendAlive(s); err != nil {
					return err
				}
			case <-s.Done():
				return nil
			}
		}
	})
}

// A who is a holder with its fence, or a waiter. Unlike the time that is left, it
// changes only when the lock changes hands.
type who struct {
	key    string
	holder lock.Holder
	fence  uint64
}

func whoIsWhere(states []lock.State) []who {
	all := []who{}
	for _, s := range states {
		for _, h := range s.Holders {
			all = append(all, who{s.Key, h.Holder, h.Fence})
		}
		for _, w := range s.Waiters {
			all = append(all, who{key: s.Key, holder: w})
		}
	}
	return all
}

// ReleaseInput is a forced release with its reason.
type ReleaseInput struct {
	Key    string `json:"key"`
	Fence  uint64 `json:"fence"` // of the holder that the page showed; 0 for any
	Reason string `json:"reason"`
}

// Validate reports the missing fields.
func (in *ReleaseInput) Validate() error {
	wrong := mega.FieldErrors{}
	in.Reason = strings.TrimSpace(in.Reason)
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

// Release releases a lock by force. The context of its holder ends, and the next
// waiter gets the lock. With a fence it spares a later holder, which the page did
// not show.
func (h *Handlers) Release(ctx *mega.Ctx) error {
	var in ReleaseInput
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	var only []lock.ForceOption
	if in.Fence != 0 {
		only = append(only, lock.OnlyFence(in.Fence))
	}
	n, err := ctx.Lock.ForceRelease(in.Key, in.Reason, only...)
	if err != nil {
		return err
	}
	notice := "released"
	if n == 0 {
		notice = "over"
	}
	return done(ctx, map[string]int{"released": n}, notice)
}
