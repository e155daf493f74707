package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"slices"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/report"
)

// rowRole makes this program measure one row. Each row has a new process, so that
// it does not inherit the heap of the rows before it.
const rowRole = "row"

// order names the row to measure.
type order struct {
	Row     string
	Quick   bool
	Profile string // file for a CPU profile, or ""
}

// answer has the claims of the row, or the error that ended it.
type answer struct {
	Claims []measure.Claim
	Error  string `json:",omitempty"`
}

// measureRows measures the rows one after the other.
func measureRows(ctx context.Context, rows []row, o order, progress io.Writer) (*report.Results, error) {
	res := report.NewResults(o.Quick)
	for _, r := range rows {
		fmt.Fprintf(progress, "%s: %s\n", r.name, r.about)
		claims, err := measureRow(ctx, r, o)
		if err != nil {
			return nil, fmt.Errorf("row %s: %w", r.name, err)
		}
		for i := range claims {
			claims[i].Row = r.name
		}
		res.Claims = append(res.Claims, claims...)
	}
	return res, nil
}

// measureRow measures r in copies of this program, each with a new lab. A quick run and a
// profile are of one process.
func measureRow(ctx context.Context, r row, o order) ([]measure.Claim, error) {
	o.Row = r.name
	n := r.copies
	if o.Quick || o.Profile != "" {
		n = 1
	}
	runs := make([][]measure.Claim, n)
	for i := range runs {
		var a answer
		err := lab.Call(ctx, rowRole, o, &a)
		if err == nil && a.Error != "" {
			err = errors.New(a.Error)
		}
		if err != nil {
			return nil, err
		}
		runs[i] = a.Claims
	}
	return measure.Combine(runs), nil
}

// serveRow is the side of the process that measures. It ends with its input.
func serveRow(ctx context.Context, in io.Reader, out io.Writer) error {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	rows := allRows()
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == o.Row })
	if i < 0 {
		return fmt.Errorf("no row is named %q", o.Row)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var a answer
	err := profiled(o.Profile, func() (err error) {
		a.Claims, err = lab.Run(ctx, o.Quick, rows[i].run)
		return err
	})
	if err != nil {
		a.Error = err.Error()
	}
	if err := json.NewEncoder(out).Encode(a); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	<-ctx.Done() // the answer is lost if the process ends before it is read
	return nil
}

// profiled runs fn, with a CPU profile of it written to file if one is named.
func profiled(file string, fn func() error) error {
	if file == "" {
		return fn()
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(fmt.Errorf("profile: %w", err), f.Close())
	}
	err = fn()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}
