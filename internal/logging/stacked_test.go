package logging_test

import (
	"bytes"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/settings"
)

// recovered returns the stack of a panic.
func recovered() (text string) {
	defer func() {
		_ = recover()
		text = string(debug.Stack())
	}()
	panic("boom")
}

// logOf returns what a process in env writes for a panic.
func logOf(t *testing.T, env string) string {
	t.Helper()
	c, err := settings.Load(settings.Source{Env: env, Apps: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := logging.New(&out, c, 0, nil).Process().With("app", "web").WithGroup("g")
	log.Error("request", "status", 500, "stack", recovered(), "took", 1)
	log.Info("next")
	return out.String()
}

func TestStackIsBelowItsRecordAndFoldedForPeople(t *testing.T) {
	text := logOf(t, "dev")
	lines := strings.Split(text, "\n")
	if !strings.HasSuffix(lines[0], "ERR request app=web g.status=500 g.took=1") {
		t.Errorf("the record is not one line without its stack:\n%s", text)
	}
	if !strings.HasPrefix(lines[1], "    logging_test.recovered  ") || !strings.Contains(lines[1], "stacked_test.go:") {
		t.Errorf("the stack does not begin at the panic:\n%s", text)
	}
	if !strings.Contains(text, "\n    … ") || !strings.HasSuffix(lines[len(lines)-2], "INF next app=web") {
		t.Errorf("want folded frames and then the next record:\n%s", text)
	}
}

func TestStackIsCompleteForPrograms(t *testing.T) {
	text := logOf(t, "production")
	if strings.Count(text, "\n") != 2 || !strings.Contains(text, `"stack":"goroutine `) {
		t.Errorf("got\n%s", text)
	}
}

// chatty logs when it is written.
type chatty struct{ log *slog.Logger }

func (c chatty) String() string {
	c.log.Info("inner")
	return "said"
}

func TestValueThatLogsDoesNotBlockTheLog(t *testing.T) {
	for _, env := range []string{"dev", "production"} {
		c, err := settings.Load(settings.Source{Env: env, Apps: []string{"web"}})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := logging.New(&out, c, 0, nil).Process()
		done := make(chan struct{})
		go func() {
			defer close(done)
			log.Warn("outer", "value", chatty{log})
			log.Error("outer", "value", chatty{log}, "stack", recovered())
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("env %s: a value that logs blocks the log", env)
		}
		if text := out.String(); strings.Count(text, "outer") != 2 || !strings.Contains(text, "inner") && env == "dev" {
			t.Errorf("env %s: got\n%s", env, text)
		}
	}
}
