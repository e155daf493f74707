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

// A client over a socket sees none of these.
func TestAnswersAndRequestsAreThoseOfAServer(t *testing.T) {
	var two struct{ N int }
	for name, x := range map[string]struct {
		handler mega.Handler
		headers []string
		expect  func(*megatest.Response)
		says    string // "" where the expectation is met
	}{
		"a header behind the begin of the answer": {
			handler: func(ctx *mega.Ctx) error {
				err := ctx.Text(http.StatusOK, "tea")
				ctx.Writer().Header().Set("Late", "yes")
				return err
			},
			expect: func(r *megatest.Response) { r.Header("Late", "yes") },
			says:   `the header Late is "", want "yes"`,
		},
		"two values in a body": {
			handler: func(ctx *mega.Ctx) error {
				_, err := fmt.Fprint(ctx.Writer(), `{"n":1} {"code":"internal"}`)
				return err
			},
			expect: func(r *megatest.Response) { r.JSON(&two) },
			says:   "the body has more than one value",
		},
		"a value and a line end": {
			handler: func(ctx *mega.Ctx) error { return ctx.Text(http.StatusOK, "{\"n\":1}\n") },
			expect:  func(r *megatest.Response) { r.JSON(&two) },
		},
		"the host among the headers": {
			handler: func(ctx *mega.Ctx) error {
				return ctx.Text(http.StatusOK, ctx.Request().Host+", "+ctx.Request().Header.Get("Host"))
			},
			headers: []string{"Host: shop.example"},
			expect:  func(r *megatest.Response) { r.Contains("shop.example, shop.example") },
			says:    `the body does not contain "shop.example, shop.example"`,
		},
		"two headers of one name": {
			handler: func(ctx *mega.Ctx) error {
				return ctx.Text(http.StatusOK, fmt.Sprint(ctx.Request().Header["X-Tag"], ctx.Request().Header["Accept"]))
			},
			headers: []string{"X-Tag: a", "x-tag: b", "Accept: text/html"},
			expect:  func(r *megatest.Response) { r.Contains("[a b] [text/html]") },
		},
		"a header without a value": {
			handler: func(ctx *mega.Ctx) error { return nil },
			headers: []string{"Accept text/html"},
			expect:  func(*megatest.Response) {},
			says:    `GET /: the header "Accept text/html" has no value: want Name: value`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &recorder{TB: t}
			kit := megatest.New(fake, megatest.Config{}, mega.Routes(func(r mega.Router) { r.Get("/", x.handler) }))
			func() {
				defer func() { _ = recover() }() // of Fatalf
				x.expect(kit.Get("/", x.headers...))
			}()
			if !strings.Contains(fake.said, x.says) || (fake.failed > 0) != (x.says != "") {
				t.Errorf("got %q, want %q", fake.said, x.says)
			}
			fake.end()
		})
	}
}

func TestTheAnswerToAHEADHasNoBody(t *testing.T) {
	r := megatest.New(t, megatest.Config{}, mega.Routes(broken)).Do(http.MethodHead, "/fine", nil)
	if r.Status(http.StatusOK).Header("Content-Type", "text/plain; charset=utf-8").Body() != "" {
		t.Errorf("the body is %q", r.Body())
	}
}

// A server leaves out the body of an answer with such a status.
func TestAnAnswerWithoutContentHasNoBody(t *testing.T) {
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		kit := megatest.New(t, megatest.Config{}, mega.Routes(func(r mega.Router) {
			r.Get("/", func(ctx *mega.Ctx) error { return ctx.JSON(status, "never seen") })
		}))
		if body := kit.Get("/").Status(status).Body(); body != "" {
			t.Errorf("the body of a %d is %q", status, body)
		}
	}
}

func TestRequestThatCannotBeMadeEndsItsTestAlone(t *testing.T) {
	fake := &recorder{TB: t}
	kit := megatest.New(fake, megatest.Config{}, mega.Routes(broken))
	for _, target := range []string{"/fine?name=green tea", ""} {
		fake.said = ""
		func() {
			defer func() { _ = recover() }() // of Fatalf
			kit.Get(target)
			t.Errorf("%q was sent", target)
		}()
		if want := fmt.Sprintf("GET %q: make the request: ", target); !strings.Contains(fake.said, want) || !strings.Contains(fake.said, "url.QueryEscape") {
			t.Errorf("%q: the failure is %q", target, fake.said)
		}
	}
	fake.end()
}
