// Package wallclock builds processes whose wall clocks are wrong. Only these
// processes' own clocks differ: they are built from sources in which time.Now
// returns a shifted time. The clock of the machine, and so the backend's, stays as
// it is.
package wallclock

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Env is the environment variable with the time by which the wall clock of a
// process is ahead, as a duration.
const Env = "MEGA_TEST_CLOCK"

// shiftedNow replaces time.Now in a package. It changes the wall clock only, as
// a wrong clock does: a time.Time has the seconds of the wall clock from bit 30
// on, beside a reading of the monotonic clock.
const shiftedNow = `package %s

import (
	"os"
	"time"
	"unsafe"
)

var shift, _ = time.ParseDuration(os.Getenv("` + Env + `"))

func shiftedNow() time.Time {
	t := time.Now()
	*(*uint64)(unsafe.Pointer(&t)) += uint64(int64(shift/time.Second) << 30)
	return t
}
`

// Build builds the tests of the current package, three folders below the root,
// over sources of packages in which the wall clock is shifted. The changed files
// replace the originals by go's -overlay.
func Build(t *testing.T, packages ...string) (bin string) {
	t.Helper()
	dir := t.TempDir()
	replaced := map[string]string{}
	put := func(original, source string) {
		file := filepath.Join(dir, fmt.Sprint(len(replaced), ".go"))
		must(t, os.WriteFile(file, []byte(source), 0o600))
		replaced[original] = file
	}
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join("../../..", filepath.FromSlash(p), "*.go"))
		must(t, err)
		reads := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			must(t, err)
			if strings.HasSuffix(file, "_test.go") || !strings.Contains(string(source), "time.Now()") {
				continue
			}
			reads = true
			file, err = filepath.Abs(file)
			must(t, err)
			put(file, strings.ReplaceAll(string(source), "time.Now()", "shiftedNow()")+"\nvar _ time.Time // the import stays used\n")
		}
		if reads {
			added, err := filepath.Abs(filepath.Join(filepath.Dir(files[0]), "shifted_now.go"))
			must(t, err)
			put(added, fmt.Sprintf(shiftedNow, filepath.Base(p)))
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	must(t, err)
	must(t, os.WriteFile(overlay, text, 0o600))
	bin = filepath.Join(dir, "shifted.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-ldflags", "-s -w", "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with a shifted clock: %v\n%s", err, out)
	}
	return bin
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
