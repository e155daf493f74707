package megatest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/megatest"
)

var errDisk = errors.New("the disk is full")

func broken(r mega.Router) {
	r.Get("/error", func(*mega.Ctx) error { return fmt.Errorf("save: %w", errDisk) })
	r.Get("/own", func(*mega.Ctx) error { return mega.Error(http.StatusTeapot, "tea.pot", "It is a teapot.") })
	r.Get("/panic", func(*mega.Ctx) error { panic("no tea") })
	r.Get("/busy", func(ctx *mega.Ctx) error {
		return ctx.Lock.With("tea", func(*mega.Ctx) error { return nil })
	})
	r.Get("/part", func(ctx *mega.Ctx) error { _, err := fmt.Fprint(ctx.Writer(), "te"); return errors.Join(errDisk, err) })
	r.Get("/fine", func(ctx *mega.Ctx) error { return ctx.Text(http.StatusOK, "tea") })
}

func TestFailedExpectationShowsTheErrorOfTheHandler(t *testing.T) {
	for target, wants := range map[string][]string{
		"/error": {"\nthe handler returned: save: the disk is full  (internal)\n    by megatest_test.broken.func1  ", "client_test.go:"},
		"/own":   {"\nthe handler returned: 418 tea.pot: It is a teapot.  (tea.pot)\n    at ", "client_test.go:"},
		"/panic": {"\nthe handler returned: panic: no tea  (internal)\n    megatest_test.broken.func3  ", "client_test.go:", "frames of mega and Go"},
		"/busy":  {"(lock.not_acquired)\n    at ", "client_test.go:"},
		"/none":  {"(request.not_found)"},
		"/part":  {"GET /part: the answer is not complete: the connection is closed\n200 ", "\nthe handler returned: the disk is full  (internal)\n    by "},
	} {
		fake := &recorder{TB: t}
		kit := megatest.New(fake, megatest.Config{Set: []string{"lock.wait=1ms"}}, mega.Routes(broken))
		kit.Lock.Hold("tea")
		kit.Get(target).Status(http.StatusOK)
		for _, want := range wants {
			if !strings.Contains(fake.said, want) {
				t.Errorf("%s: the failure lacks %q:\n%s", target, want, fake.said)
			}
		}
		fake.end()
	}
	fake := &recorder{TB: t}
	megatest.New(fake, megatest.Config{}, mega.Routes(broken)).Get("/fine").Contains("coffee")
	if strings.Contains(fake.said, "the handler returned") {
		t.Errorf("an answer without an error has a cause:\n%s", fake.said)
	}
	fake.end()
}
