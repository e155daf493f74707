package plan_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
)

type shelf struct{}

func (*shelf) Close() error { return nil }

type mail struct {
	From string `key:"from"`
}

type closer interface{ Close() error }

func newShelf() *shelf { return &shelf{} }

func TestMissingValueNamesTheConstructorThatWasMeant(t *testing.T) {
	provide := plan.Provide(newShelf)
	empty := plan.App("web")
	for name, x := range map[string]struct {
		options []plan.Option
		text    string
		fact    string
		action  string
	}{
		"a value in place of a pointer": {
			[]plan.Option{plan.App("web", provide, plan.Routes(func(megactx.Router, shelf) {}))},
			"Nothing provides plan_test.shelf.", "*plan_test.shelf, by ", "Take *plan_test.shelf instead of plan_test.shelf",
		},
		"a pointer in place of a value": {
			[]plan.Option{empty, plan.App("admin", plan.Provide(func() shelf { return shelf{} }), plan.Routes(func(megactx.Router, *shelf) {}))},
			"Nothing provides *plan_test.shelf.", "plan_test.shelf, by ", "Take plan_test.shelf instead of *plan_test.shelf",
		},
		"a pointer to what the framework provides": {
			[]plan.Option{plan.App("web", plan.Routes(func(megactx.Router, slog.Logger) {}))},
			"Nothing provides slog.Logger.", "*slog.Logger, by mega", "Take *slog.Logger instead of slog.Logger",
		},
		"a section of the configuration": {
			[]plan.Option{plan.App("web", plan.Routes(func(megactx.Router, mail) {}))},
			"Nothing provides plan_test.mail.", "", `Declare its section of the configuration: mega.Config[plan_test.mail]("…")`,
		},
		"a value of another app": {
			[]plan.Option{plan.App("web", plan.Routes(func(megactx.Router, *shelf) {})), plan.App("admin", provide)},
			`Nothing provides *plan_test.shelf here: the values of the app "admin" are private to it.`,
			`*plan_test.shelf, inside the app "admin" alone, by `, `Move the constructor out of mega.App("admin", …), so that all apps share one value`,
		},
		"a value of an app in a shared function": {
			[]plan.Option{plan.App("admin", provide), plan.Provide(func(*shelf) int { return 1 })},
			`the values of the app "admin" are private to it.`, `inside the app "admin" alone`, `Move the constructor out of mega.App("admin", …), so that all apps share one value`,
		},
		"an interface": {
			[]plan.Option{plan.App("web", provide, plan.Routes(func(megactx.Router, closer) {}))},
			"Nothing provides plan_test.closer.", "*plan_test.shelf, which implements it, by ", "Return plan_test.closer from the constructor, in place of *plan_test.shelf",
		},
		"a value that nothing resembles": {
			[]plan.Option{plan.App("web", plan.Routes(func(megactx.Router, *shelf) {}))},
			"Nothing provides *plan_test.shelf.", "", "Add its constructor: mega.Provide(…)",
		},
	} {
		_, err := plan.NewProgram(x.options, nil)
		f, ok := errors.AsType[*failure.Failure](err)
		if !ok || f.Code != "boot.not_provided" {
			t.Errorf("%s: got %v, want boot.not_provided", name, err)
			continue
		}
		if name == "a value of an app in a shared function" {
			// A constructor beside the app's would be provided twice.
			if second := f.Actions[1]; !strings.HasPrefix(second, "Move mega.Provide at ") || !strings.HasSuffix(second, ` into mega.App("admin", …)`) {
				t.Errorf("%s: advises %q", name, second)
			}
		}
		if !strings.HasSuffix(f.Text, x.text) || !strings.Contains(fmt.Sprint(f.Facts), x.fact) || f.Actions[0] != x.action {
			t.Errorf("%s: got %q\n%v\n%q", name, f.Text, f.Facts, f.Actions)
		}
	}
}
