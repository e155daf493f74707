package selection

import (
	"errors"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/failure"
)

// The end of the hub would not help: the next one has the same limit.
func TestAHubWithoutDescriptorsNeedsAHigherLimit(t *testing.T) {
	c, d := pinnedBy(t, false, "MEGA_CLUSTER_SOCKET=/run/shop/c.sock")
	for cause, want := range map[string]string{
		"the hub (process 7) refuses this process: open x: too many open files": "ulimit -n 1024",
		"the hub (process 7) does not answer":                                   "End the other process",
	} {
		f, ok := errors.AsType[*failure.Failure](socketUnusable(c, d.Lock, "/run/shop/c.sock", errors.New(cause)))
		if !ok || !strings.Contains(f.Actions[0], want) {
			t.Errorf("%s: %+v, want the action %q first", cause, f, want)
		}
	}
}
