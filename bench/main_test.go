package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/report"
)

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
