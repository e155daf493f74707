//go:build linux || darwin

package hub

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// At the limit of descriptors the hub tries to accept a hundred times a second.
func TestFailuresToAcceptAreReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := &Host{log: slog.New(slog.NewTextHandler(&log, nil))}
		h.ctx, h.end = context.WithCancelCause(t.Context())
		attempts := 0
		began := time.Now()
		h.accept(func() (net.Conn, error) {
			if attempts++; time.Since(began) > 2*time.Minute {
				return nil, net.ErrClosed
			}
			return nil, syscall.EMFILE
		})
		if n := strings.Count(log.String(), "accept failed"); n != 3 || attempts < 10_000 {
			t.Errorf("%d reports of %d attempts", n, attempts)
		}
	})
}
