package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/megaframework/mega/internal/secrets"
)

func newRemembering() (*slog.Logger, *recentRecords, *bytes.Buffer) {
	var out bytes.Buffer
	m := &recentRecords{}
	return slog.New(recorder{Handler: slog.NewTextHandler(&out, nil), records: m, veil: &secrets.Veil{}}), m, &out
}

func TestWarningsAndErrorsAreKeptWithTheirAttributes(t *testing.T) {
	log, m, out := newRemembering()
	log.Info("request")
	log.With("app", "web").WithGroup("g").Warn("slow", "took", "3s", slog.Group("by", "user", "ann"), "url", "redis://u:secret@host/1")
	got := m.recent()
	want := []Attr{{"app", "web"}, {"g.took", "3s"}, {"g.by.user", "ann"}, {"g.url", "redis://***@host/1"}}
	if len(got.Errors) != 1 || got.Errors[0].Message != "slow" || got.Errors[0].Level != "WARN" {
		t.Fatalf("kept %+v", got)
	}
	if diff := cmp.Diff(want, got.Errors[0].Attrs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !strings.Contains(out.String(), "request") || !strings.Contains(out.String(), "slow") {
		t.Errorf("logged: %s", out)
	}
}

func TestFloodOfErrorsDisplacesNoLostLease(t *testing.T) {
	log, m, _ := newRemembering()
	(&LockEvents{Log: log}).warn(lostLease, "product:42")
	for i := range 3 * recentErrors {
		log.Error(fmt.Sprint(i), "stack", strings.Repeat("x", 2*recentValue))
	}
	got := m.recent()
	if len(got.Lost) != 1 || got.Lost[0].Attrs[0] != (Attr{"key", "product:42"}) {
		t.Errorf("lost leases: %+v", got.Lost)
	}
	if len(got.Errors) != recentErrors || got.Errors[0].Message != fmt.Sprint(3*recentErrors-1) || len(got.Errors[0].Attrs[0].Value) > recentValue+len("…") {
		t.Errorf("%d errors, the newest %q", len(got.Errors), got.Errors[0].Message)
	}
}

func TestRememberedMessageIsCut(t *testing.T) {
	log, m, _ := newRemembering()
	log.Error(strings.Repeat("x", 2*recentValue))
	if got := len(m.recent().Errors[0].Message); got != recentValue+len("…") {
		t.Errorf("a message of %d bytes is kept", got)
	}
	log.Error(strings.Repeat("한", recentValue))
	if got := m.recent().Errors[0].Message; strings.Trim(got, "한") != "…" {
		t.Errorf("a letter is cut: %q", got[len(got)-10:])
	}
}

func TestRememberedStackHasTheFramesOfTheProgram(t *testing.T) {
	log, m, _ := newRemembering()
	text := "goroutine 7 [running]:\nruntime/debug.Stack()\n\t/usr/local/go/src/runtime/debug/stack.go:26 +0x5e\npanic({0x1, 0x2})\n\t/usr/local/go/src/runtime/panic.go:860 +0x13a\n" +
		strings.Repeat("net/http.HandlerFunc.ServeHTTP(0x1)\n\t/usr/local/go/src/net/http/server.go:2286 +0x29\n", 100) +
		"main.buy(0x1)\n\t/src/shop/main.go:42 +0x1d\n"
	log.Error("request", "stack", text)
	if got := m.recent().Errors[0].Attrs[0].Value; got != "… 100 frames of mega and Go\nmain.buy  /src/shop/main.go:42" {
		t.Errorf("got %q", got)
	}
	log.Error("request", "stack", "another format")
	if got := m.recent().Errors[0].Attrs[0].Value; got != "another format" {
		t.Errorf("got %q", got)
	}
}
