//go:build unix

package nats_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/megaframework/mega/drivers/nats"
)

func TestPipeInThePlaceOfAFileIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []nats.Config{{NKeyFile: pipe}, {CredsFile: pipe}, {TLS: nats.TLS{CA: pipe}}, {TLS: nats.TLS{Cert: pipe, Key: pipe}}} {
		c.URL = "nats://127.0.0.1:1"
		if _, err := nats.OpenBus(t.Context(), c); err == nil || !strings.Contains(err.Error(), pipe+": it is not a file") {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}
