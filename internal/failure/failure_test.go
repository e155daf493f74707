package failure_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
)

func TestJSONHasTheContentOfThePanel(t *testing.T) {
	f := &failure.Failure{
		Code: "config.syntax", Exit: failure.ExitConfig, Text: "The configuration is wrong in one place.",
		Problems: settings.Problems{{Code: "config.syntax", Text: "is not TOML", Hint: "as in redis://ann:hunter2@h", Excerpt: "name = shop\n       ^"}},
		Mask:     func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") },
	}
	var panel strings.Builder
	f.Print(&panel, "shop")
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{panel.String(), string(text)} {
		if strings.Contains(shown, "hunter2") || !strings.Contains(shown, "name = shop") || !strings.Contains(shown, "as in redis://") {
			t.Errorf("got %s", shown)
		}
	}
}
