package logging_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode"

	"github.com/lmittmann/tint"

	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/secrets"
	"github.com/megaframework/mega/internal/settings"
)

func TestLoggedTextForgesNoLineOfTheLog(t *testing.T) {
	c, err := settings.Load(settings.Source{Env: "dev", Apps: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	const hostile = "not found\r\n00:00:00 INF paid\x1b[2K\u202e\u009b\xff\ufffdend"
	var out bytes.Buffer
	log := logging.New(&out, c, 0, nil).Process()
	log.Info(hostile, "value", hostile, "error", errors.New(hostile), hostile, 1)
	log.Info("with a stack", "stack", "\x1b[2K"+hostile)
	log.Info("한글 \"as it is\"")
	text := out.String()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
		t.Errorf("the log has characters that do not print: %q", text)
	}
	if strings.Contains(text, "\n00:00:00") || strings.Count(text, "\n") != 5 {
		t.Errorf("the log has forged lines:\n%s", text)
	}
	if got := strings.Count(text, "end"); got != 5 {
		t.Errorf("%d of 5 texts are whole:\n%s", got, text)
	}
	if !strings.Contains(text, "INF 한글 \"as it is\"") {
		t.Errorf("a message that prints has changed:\n%s", text)
	}
}

// A terminal gets colours, and with them the escape characters of values.
func TestLoggedTextDoesNotControlATerminal(t *testing.T) {
	for _, hostile := range []string{"a\x1b[2Kb", `a \x1b[2Kb`, "a \u009b2Kb"} {
		write := func(value string) string {
			var out bytes.Buffer
			slog.New(tint.NewTextHandler(&out, &tint.Options{ReplaceAttr: new(secrets.Veil).TextAttr})).
				Error(value, value, value, "error", errors.New(value), slog.Group("g", "value", []string{value}))
			return out.String()
		}
		count := func(s string) int { return strings.Count(s, "\x1b") + strings.Count(s, "\u009b") }
		if want, got := count(write("a b")), count(write(hostile)); got != want {
			t.Errorf("%q: %d escape characters, want the %d of the colours", hostile, got, want)
		}
	}
}
