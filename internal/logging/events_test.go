package logging_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/lock"
)

func TestAReleaseWithoutALeaseIsARequestThatIsNotWithdrawn(t *testing.T) {
	for want, e := range map[string]lock.ReleaseFailed{
		`"lock not released, trying again" key=k left=5s`:          {Key: "k", Fence: 7, Err: lock.ErrUnavailable, Left: 5 * time.Second},
		`"lock request not withdrawn, trying again" key=k left=5s`: {Key: "k", Err: lock.ErrUnavailable, Left: 5 * time.Second},
	} {
		var out bytes.Buffer
		logging.LockEvents{Log: slog.New(slog.NewTextHandler(&out, nil))}.Observe(e)
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}
