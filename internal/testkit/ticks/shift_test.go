//go:build linux || darwin

package ticks

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shiftEnv is the time by which the wall clock of a child is ahead.
const shiftEnv = "MEGA_TEST_CLOCK"

// shiftedNow replaces time.Now in a package. It changes the wall clock only, as
// a wrong clock does: a time.Time has the seconds of the wall clock from bit 30
// on, beside a reading of the monotonic clock.
const shiftedNow = `package %s

import (
	"os"
	"time"
	"unsafe"
)

var shift, _ = time.ParseDuration(os.Getenv("` + shiftEnv + `"))

func shiftedNow() time.Time {
	t := time.Now()
	*(*uint64)(unsafe.Pointer(&t)) += uint64(int64(shift/time.Second) << 30)
	return t
}
`

// shiftedPackages are the packages between Every and the connection to a backend.
var shiftedPackages = []string{
	"lock", "lock/driver", "drivers/redis", "drivers/internal/table",
	"drivers/cluster", "drivers/cluster/internal/hub", "drivers/cluster/internal/protocol", "drivers/cluster/internal/rendezvous",
}

// buildShifted builds the tests of this package over sources in which the wall
// clock is shifted. The changed files replace the originals by go's -overlay.
func buildShifted(t *testing.T) (bin string) {
	t.Helper()
	dir := t.TempDir()
	replaced := map[string]string{}
	put := func(original, source string) {
		file := filepath.Join(dir, fmt.Sprint(len(replaced), ".go"))
		must(t, os.WriteFile(file, []byte(source), 0o600))
		replaced[original] = file
	}
	for _, p := range shiftedPackages {
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
