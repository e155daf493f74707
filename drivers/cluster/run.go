package cluster

import (
	"context"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/driver"
)

var (
	_ driver.Runner = (*Lock)(nil)
	_ driver.Runner = (*namespaced)(nil)
)

// BeginRun implements [driver.Runner].
func (x *Lock) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (run driver.Run, err error) {
	err = whenOpen(ctx, func() error {
		q := newQuestion(g.Key)
		defer q.free()
		q.run = &run
		return x.inquire(ctx, q, func(number uint64) *protocol.Frame {
			f := protocol.Begin(protocol.LockBegin).Uint(number).String(g.Key).String(g.Token)
			return f.Uint(g.Fence).Int(int64(every)).Bool(spend)
		})
	})
	return run, err
}

// EndRun implements [driver.Runner].
func (x *Lock) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	q := newQuestion(g.Key)
	defer q.free()
	return x.inquire(ctx, q, func(number uint64) *protocol.Frame {
		return protocol.AddRun(protocol.Begin(protocol.LockEnd).Uint(number).String(g.Key).String(g.Token), &r)
	})
}

// restFrame returns the frame that releases g and keeps its key taken.
func restFrame(number uint64, g *driver.Grant) *protocol.Frame {
	return protocol.Begin(protocol.LockRest).Uint(number).String(g.Key).String(g.Token).Int(int64(g.Rest)).Uint(g.Rev)
}

// ran records a run that a hub has reported.
func (x *Lock) ran(d *protocol.Decoder) error {
	r, err := protocol.ReadRecord(d)
	if err != nil {
		return err
	}
	x.runs.RestoreRun(&r)
	return nil
}

// reportRuns returns the frames with the runs that this process knows.
func (x *Lock) reportRuns() (frames []*protocol.Frame) {
	for _, r := range x.runs.Runs() {
		frames = append(frames, protocol.AddRecord(protocol.Begin(protocol.LockRun), &r))
	}
	return frames
}

// addRun adds the last run of a key to its state. It is this process's copy.
func (x *Lock) addRun(s *driver.State) {
	if known, err := x.runs.Inspect(s.Key); err == nil {
		s.LastRun = known.LastRun
	}
}

// BeginRun implements [driver.Runner].
func (x *namespaced) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	return x.Lock.BeginRun(ctx, x.theirs(g), every, spend)
}

// EndRun implements [driver.Runner].
func (x *namespaced) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	return x.Lock.EndRun(ctx, x.theirs(g), r)
}
