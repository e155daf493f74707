//go:build unix

package boot_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/testkit/certificate"
)

// TestAPipeInPlaceOfAKeyStopsTheBoot: to open it would block until somebody writes.
func TestAPipeInPlaceOfAKeyStopsTheBoot(t *testing.T) {
	dir := t.TempDir()
	cert, key, pipe := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "pipe")
	certificate.Certificate{Number: 1}.WriteTo(t, cert, key)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	app := mega.App("main", mega.Routes(func(r megactx.Router) { r.Get("/", func(*megactx.Ctx) error { return nil }) }))
	p, _ := process("MEGA_APPS_MAIN_TLS_CERT="+cert, "MEGA_APPS_MAIN_TLS_KEY="+pipe)
	_, err := boot.Start(t.Context(), p, app)
	if f, ok := errors.AsType[*failure.Failure](err); !ok || f.Code != "app.bad_certificate" || !strings.Contains(f.Cause.Error(), pipe+": it is not a file") {
		t.Errorf("Start: %+v", err)
	}
}
