package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// runSuffix ends the name of the last run of a lock, which is in the lock's hash
// slot.
const runSuffix = "run"

// runLife is how long the record of a run is kept after two of its intervals,
// for operators. L18 counts from there.
const runLife = 24 * time.Hour

var _ driver.Runner = (*queue)(nil)

// runName is the key of the last run of the lock with this holder key.
func (l *layout) runName(holder string) string { return holder + l.separator() + runSuffix }

// onRun returns a call of the script run on the grant g.
func (q *queue) onRun(g driver.Grant, argv ...string) request {
	holder := q.layout.holder(g.Key)
	return q.scripts.run.over([]string{holder, q.layout.runName(holder)}, append([]string{g.Token, digits(g.Fence)}, argv...)...)
}

func recordLife(every time.Duration) string { return digits(millis(2*every + runLife)) }

// BeginRun implements [driver.Runner].
func (q *queue) BeginRun(ctx context.Context, g driver.Grant, every time.Duration, spend bool) (driver.Run, error) {
	if q.closing.Load() {
		return driver.Run{}, driver.ErrClosed
	}
	by := q.claims.holder(g.Token)
	text, err := json.Marshal(by)
	if err != nil {
		return driver.Run{}, fmt.Errorf("begin run: %w", err)
	}
	o, err := q.run(ctx, q.onRun(g, "begin", digits(every.Microseconds()), yesNo(spend), recordLife(every), string(text)))
	if err != nil {
		return driver.Run{}, err
	}
	a, err := check(o.reply, 1)
	if err != nil {
		return driver.Run{}, err
	}
	if a.num(0) < 0 {
		return driver.Run{}, lostBy(g.Key, "")
	}
	r := driver.Run{Tick: a.num(1), Every: every, Fence: g.Fence, By: by}
	r.Left = time.Duration(a.num(2)) * time.Microsecond
	if a.num(0) == 1 {
		r.Due, r.Start = true, time.UnixMicro(a.num(3))
	}
	return r, nil
}

// EndRun implements [driver.Runner].
func (q *queue) EndRun(ctx context.Context, g driver.Grant, r driver.Run) error {
	if q.closing.Load() {
		return driver.ErrClosed
	}
	g.Fence = r.Fence
	o, err := q.run(ctx, q.onRun(g, "end", digits(r.Tick), digits(r.Every.Microseconds()), string(r.Outcome), recordLife(r.Every)))
	if err != nil {
		return err
	}
	a, err := check(o.reply, 1)
	if err == nil && a.num(0) < 0 {
		err = lostBy(g.Key, "")
	}
	return err
}

// holder returns the holder of the grant with this token.
func (cs *claims) holder(token string) driver.Holder {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if held := cs.byToken[token]; held != nil {
		return held.r.Holder
	}
	return driver.Holder{}
}

// runFormat is the version of the record of a run.
const runFormat = "3"

// decodeRun reads a record of the script run. It returns nil without a record, and a
// skipped run for one of another version (L23).
func decodeRun(text string) *driver.Run {
	if text == "" {
		return nil
	}
	if r := decodeOwnRun(text); r != nil {
		return r
	}
	version, _, _ := strings.Cut(text, " ")
	if version == runFormat || strings.Trim(version, "0123456789") != "" {
		return &driver.Run{Skipped: "the value is not the record of a run"}
	}
	return &driver.Run{Skipped: fmt.Sprintf("the record has format %s, this program uses format %s", version, runFormat)}
}

// decodeOwnRun is decodeRun for a record of this version, or returns nil.
func decodeOwnRun(text string) *driver.Run {
	var version string
	var spent, over, start, every int64
	var r driver.Run
	var outcome string
	fields := strings.SplitN(text, " ", 9)
	if len(fields) < 9 {
		return nil
	}
	n, _ := fmt.Sscan(strings.Join(fields[:8], " "), &version, &spent, &r.Tick, &every, &r.Fence, &start, &over, &outcome)
	if n < 8 || version != runFormat || every > math.MaxInt64/int64(time.Microsecond) {
		return nil
	}
	r.Every, r.Start = time.Duration(every)*time.Microsecond, time.UnixMicro(start)
	if over != 0 {
		r.End = time.UnixMicro(over)
	}
	if outcome != "-" {
		r.Outcome = driver.Outcome(outcome)
	}
	_ = json.Unmarshal([]byte(fields[8]), &r.By) // for display
	return &r
}
