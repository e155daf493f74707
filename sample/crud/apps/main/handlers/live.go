package handlers

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// lookInterval is the time between two looks at the locks for a page: drivers
// notify the waiters of a lock, not its observers.
const lookInterval = 100 * time.Millisecond

// aliveInterval is the time between two events "alive", by which a page knows that
// the server works: one that is stopped ends no connection.
const aliveInterval = 5 * time.Second

// Live streams the demo lock: "changed" when it changes hands or has a new step,
// "left" with the time that is left to its holder, and "race" with the progress
// of a race in any process.
func (l *Locks) Live(ctx *mega.Ctx) error {
	return ctx.SSE(func(s *mega.Stream) error {
		if err := forward(s, string(services.RaceProgresses), "race"); err != nil {
			return err
		}
		tick := time.NewTicker(lookInterval)
		defer tick.Stop()
		alive := time.NewTicker(aliveInterval)
		defer alive.Stop()
		for sent := ""; ; {
			state, err := s.Lock.Inspect(services.DemoKey)
			if err != nil {
				return err
			}
			steps, err := l.trail.Newest(s)
			if err != nil {
				return err
			}
			now := fingerprint(state, steps)
			switch {
			case now != sent:
				err = s.Send("changed", "")
			case len(state.Holders) > 0:
				err = s.Send("left", map[string]int64{"millis": state.Holders[0].Left.Milliseconds()})
			}
			if err != nil {
				return err
			}
			sent = now
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

// fingerprint changes when a page has something new to show.
func fingerprint(state lock.State, steps []store.Step) string {
	var newest int64
	if len(steps) > 0 {
		newest = steps[0].ID
	}
	var fences []uint64
	for _, h := range state.Holders {
		fences = append(fences, h.Fence)
	}
	text, _ := json.Marshal([]any{newest, fences, state.Waiters}) // its parts can be encoded
	return string(text)
}

// forward sends the events of a subject to a page.
func forward(s *mega.Stream, subject, event string) error {
	_, err := s.Bus.Subscribe(subject,
		func(_ *mega.Ctx, m *bus.Msg) error { return s.Send(event, json.RawMessage(m.Data)) },
		bus.OnGap(func(_ context.Context, missed int) error { return s.Send("gap", map[string]int{"missed": missed}) }))
	return err
}

// Live streams the notes, and which worker received which job. The event "ready"
// has the process that serves the page. The stream ends while the bus is disconnected.
func (m *Messages) Live(ctx *mega.Ctx) error {
	return ctx.SSE(func(s *mega.Stream) error {
		if err := forward(s, string(services.Notes), "note"); err != nil {
			return err
		}
		if err := forward(s, string(services.JobsDone), "job"); err != nil {
			return err
		}
		alive := time.NewTicker(aliveInterval)
		defer alive.Stop()
		for event := "ready"; ; event = "alive" {
			if s.Bus.Stats().State == bus.StateDisconnected {
				return bus.ErrDisconnected
			}
			if err := s.Send(event, map[string]int{"pid": os.Getpid()}); err != nil {
				return err
			}
			select {
			case <-alive.C:
			case <-s.Done():
				return nil
			}
		}
	})
}
