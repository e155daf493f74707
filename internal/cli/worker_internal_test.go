package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/admin"
)

func TestPauseOfAWorkerIsShown(t *testing.T) {
	var b strings.Builder
	next := time.Now().Add(12*time.Second + 900*time.Millisecond)
	printWorkers(&b, []supervisedWorkers{{Name: "shop", PID: 1, Workers: []admin.Worker{
		{ID: 1, State: "failing", Ended: "exit status 70", Generation: 1, Since: time.Now(), Next: next},
		{ID: 2, State: "down", Next: next},
		{ID: 3, State: "down"},
	}}})
	for _, want := range []string{
		"  1   -    failing (exit status 70), next start in 12s  ", "  2   -    down, next start in 12s  ", "  3   -    down  ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
