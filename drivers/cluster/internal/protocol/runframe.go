package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/megaframework/mega/drivers/internal/table"
	"github.com/megaframework/mega/lock/driver"
)

// The frames about runs and resting grants. A hub of an earlier build ignores
// them: the question then ends with its timeout.
const (
	LockBegin = LockReported + 1 + iota // number, key, token, fence, interval, whether the tick is spent: starts a run
	LockEnd                             // number, key, token, run: ends a run
	LockRest                            // number, key, token, rest, revision: releases a grant whose key stays taken
	LockRun                             // record: the client knows it from an earlier hub
)

// LockRan is sent to every client, which reports the record to the next hub.
const LockRan = LockLost + 1 // record

// The bounds of the interval of runs.
const maxEvery = 366 * 24 * time.Hour

// AddRun adds a run.
func AddRun(f *Frame, r *driver.Run) *Frame {
	f.Int(r.Tick).Int(int64(r.Every)).Uint(r.Fence).Int(micros(r.Start)).Int(micros(r.End)).String(string(r.Outcome))
	AddHolder(f, &r.By)
	return f.Bool(r.Due).Int(int64(r.Left))
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// ReadRun reads a value that AddRun has written.
func ReadRun(d *Decoder) (r driver.Run, err error) {
	r.Tick, r.Every, r.Fence = d.Int(), time.Duration(d.Int()), d.Uint()
	r.Start, r.End, r.Outcome = fromMicros(d.Int()), fromMicros(d.Int()), driver.Outcome(d.String())
	r.By = ReadHolder(d, &driver.Holder{})
	r.Due, r.Left = d.Bool(), time.Duration(d.Int())
	if len(r.Outcome) > maxToken {
		err = fmt.Errorf("an outcome of %d bytes", len(r.Outcome))
	}
	return r, errors.Join(d.Err(), err, CheckEvery(r.Every), CheckHolder(&r.By))
}

// CheckEvery checks the interval of a run.
func CheckEvery(every time.Duration) error {
	if every < time.Microsecond || every > maxEvery {
		return fmt.Errorf("a run every %v", every)
	}
	return nil
}

// maxLife bounds the life of a record.
const maxLife = 2 * maxEvery

// AddRecord adds a record of a run.
func AddRecord(f *Frame, r *table.Record) *Frame {
	return AddRun(f.String(r.Key).Int(micros(r.Spent)), &r.Run).Int(int64(r.Life))
}

// ReadRecord reads a value that AddRecord has written.
func ReadRecord(d *Decoder) (r table.Record, err error) {
	r.Key, r.Spent = d.String(), fromMicros(d.Int())
	r.Run, err = ReadRun(d)
	if d.Left() > 0 { // not from an earlier build
		r.Life = time.Duration(d.Int())
	}
	if r.Life < 0 || r.Life > maxLife {
		err = errors.Join(err, fmt.Errorf("a record that lives for %v", r.Life))
	}
	return r, errors.Join(err, d.Err(), checkName(r.Key, "-"))
}
