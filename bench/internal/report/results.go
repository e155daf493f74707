// Package report keeps the results of a run, and shows them: as a table beside an
// earlier run, and as a page.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/megaframework/mega/bench/internal/measure"
)

// Results is one run.
type Results struct {
	Date   time.Time `json:"date"`
	Go     string    `json:"go"`
	System string    `json:"system"`
	CPUs   int       `json:"cpus"`
	CPU    string    `json:"cpu,omitempty"`
	// Versions has the versions of the servers and of the compared modules.
	Versions []version       `json:"versions,omitempty"`
	Quick    bool            `json:"quick,omitempty"`
	Claims   []measure.Claim `json:"claims"`
}

// NewResults returns the results of a run that begins now.
func NewResults(quick bool) *Results {
	return &Results{
		Date:   time.Now().UTC().Truncate(time.Second),
		Go:     runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs:   runtime.NumCPU(),
		CPU:    processor(),
		Quick:  quick,

		Versions: versions(),
	}
}

// Load reads the results of an earlier run; there need not be one.
func Load(file string) (*Results, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Results{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the earlier results: %w", err)
	}
	var r Results
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read the earlier results in %s: %w", file, err)
	}
	return &r, nil
}

// Save writes the results to file, or nowhere if it has no name.
func (r *Results) Save(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// Missed returns the number of missed claims.
func (r *Results) Missed() (n int) {
	for _, c := range r.Claims {
		if c.Missed() {
			n++
		}
	}
	return n
}
