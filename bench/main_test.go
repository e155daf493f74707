package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/report"
)

func TestMain(m *testing.M) {
	if !lab.Played(context.Background(), roles()) {
		os.Exit(m.Run())
	}
}

func TestRowIsMeasuredInAProcessOfItsOwn(t *testing.T) {
	rows := selected("memory-alone")
	r, err := measureRows(t.Context(), rows, order{Quick: true}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Claims) == 0 || r.Claims[0].Row != "memory-alone" || r.Claims[0].Mega <= 0 {
		t.Errorf("got %+v", r.Claims)
	}
	rows[0].name = "nonesuch" // known here, and not to the other process
	_, err = measureRows(t.Context(), rows, order{Quick: true}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "row nonesuch") {
		t.Errorf("a row that the process does not have: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measureRows(ctx, selected("redis-contended"), order{}, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: got %v", err)
	}
}

func TestProfileIsOfOneRow(t *testing.T) {
	err := run(t.Context(), []string{"-row", "nats", "-cpuprofile", filepath.Join(t.TempDir(), "p")}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "nats-publish, nats-request") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownRowListsTheExistingRows(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), []string{"-row", "nonesuch"}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "memory-alone") {
		t.Errorf("got %v", err)
	}
}

func TestReportIsMadeWithoutMeasuring(t *testing.T) {
	dir := t.TempDir()
	from, to, want := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.html"), filepath.Join(dir, "want.html")
	r := report.NewResults(true)
	r.Claims = []measure.Claim{{Row: allRows()[0].name, Name: "cost", Value: 1.25, Bound: 2}, {Row: "no such row", Name: "none"}}
	if err := errors.Join(r.Save(from), report.SavePage(want, r, pageOutline())); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-before", from, "-report", to}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	var pages [2][]byte
	for i, file := range []string{to, want} {
		var err error
		if pages[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(pages[0], pages[1]) {
		t.Error("the page of the file is not the page of its results")
	}
}

func TestPartialRunDoesNotReplaceTheResults(t *testing.T) {
	for _, args := range [][]string{{"-row", "memory-alone"}, {"-quick"}} {
		err := run(t.Context(), append(args, "-o", "./results.json"), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "whole runs") {
			t.Errorf("%v: got %v", args, err)
		}
	}
}
