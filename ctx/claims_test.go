package megactx_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	megactx "github.com/megaframework/mega/ctx"
)

// refusal returns the panic of routes and the places that it names.
func refusal(routes func(megactx.Router)) (text, first, again string) {
	defer func() {
		if value := recover(); value != nil {
			text = fmt.Sprint(value)
			if c, ok := value.(interface{ Places() (first, again string) }); ok {
				first, again = c.Places()
			}
		}
	}()
	routes(newStage().router)
	return "", "", ""
}

// named returns a handler that answers with a name.
func named(name string) megactx.Handler {
	return func(c *megactx.Ctx) error { return c.Text(200, name) }
}

func TestConflictingRoutesAreRefusedWithBothPlaces(t *testing.T) {
	h := named("")
	for name, routes := range map[string]func(megactx.Router){
		"same pattern":         func(r megactx.Router) { r.Get("/p/{id}", h); r.Get("/p/{id}", h) },
		"other parameter name": func(r megactx.Router) { r.Put("/p/{id}/x", h); r.Put("/p/{name}/x", h) },
		"every method twice":   func(r megactx.Router) { r.Handle("/p", h); r.Handle("/p", h) },
		"same expression":      func(r megactx.Router) { r.Get("/{a:[0-9]{2}}", h); r.Get("/{b:[0-9]{2}}", h) },
		"in a group and outside": func(r megactx.Router) {
			r.Get("/p/{id}", h)
			r.Route("/p", func(r megactx.Router) { r.Get("/{x}", h) })
		},
		"root of a group": func(r megactx.Router) { r.Route("/p", func(r megactx.Router) { r.Get("/", h) }); r.Get("/p", h) },
		"its slash":       func(r megactx.Router) { r.Route("/p", func(r megactx.Router) { r.Get("/", h) }); r.Get("/p/", h) },
		"two groups with plain middleware": func(r megactx.Router) {
			plain := func(r megactx.Router) {
				r.UseStd(func(next http.Handler) http.Handler { return next })
			}
			r.Route("/p/{id}", plain)
			r.Route("/p/{name}/", plain)
		},
		"a group in a group and its path": func(r megactx.Router) {
			r.Route("/a/b", func(r megactx.Router) { r.Get("/c", h) })
			r.Route("/a", func(r megactx.Router) { r.Route("/b", func(r megactx.Router) { r.Get("/c", h) }) })
		},
		"the rest of a group": func(r megactx.Router) {
			r.Handle("/p/*", h)
			r.Route("/p", func(r megactx.Router) { r.Handle("/*", h) })
		},
	} {
		text, first, again := refusal(routes)
		if text == "" || !strings.Contains(first, "claims_test.go:") || !strings.Contains(again, "claims_test.go:") {
			t.Errorf("%s: %q, %q, %q", name, text, first, again)
		}
	}
}

func TestMostSpecificRouteAnswersInAnyOrder(t *testing.T) {
	add := []func(megactx.Router){
		func(r megactx.Router) { r.Get("/p/{id}", named("one")) },
		func(r megactx.Router) { r.Get("/p/new", named("new")) },
		func(r megactx.Router) { r.Post("/p/{name}", named("change")) },
		func(r megactx.Router) { r.Get("/p/{id:[0-9]{2}}", named("two digits")) },
		func(r megactx.Router) { r.Handle("/p/{any}", named("any")) },
		func(r megactx.Router) { r.Get("/g", named("outer")) },
		func(r megactx.Router) {
			r.Route("/g", func(r megactx.Router) {
				r.Post("/", named("root"))
				r.Handle("/*", named("rest"))
				r.Route("/in", func(r megactx.Router) { r.Get("/", named("in")) })
			})
		},
		func(r megactx.Router) { r.Route("/p", func(r megactx.Router) { r.Get("/export", named("export")) }) },
		func(r megactx.Router) {
			r.Route("/p/{id}", func(r megactx.Router) { r.Get("/parts", named("parts")); r.Delete("/", named("removal")) })
		},
		func(r megactx.Router) { r.Route("/p", func(r megactx.Router) { r.Get("/all/{what}", named("all")) }) },
		func(r megactx.Router) { r.Get("/*", named("else")) },
	}
	want := map[string]string{
		"GET /p/7": "one", "GET /p/new": "new", "POST /p/7": "change", "GET /p/77": "two digits", "PUT /p/7": "any",
		"GET /g": "outer", "POST /g": "root", "PUT /g": "rest", "GET /g/": "rest", "GET /g/x/y": "rest", "GET /g/in": "in", "GET /g/in/": "in",
		"GET /p/export": "export", "GET /p/7/parts": "parts", "GET /p/all/parts": "all", "DELETE /p/7": "removal", "GET /p/": "else",
	}
	for turn := range add {
		s := newStage()
		for i := range add {
			add[(i+turn)%len(add)](s.router)
		}
		for request, want := range want {
			method, target, _ := strings.Cut(request, " ")
			if w := s.ask(method, target, "", "Sec-Fetch-Site: same-origin"); w.Body.String() != want {
				t.Errorf("begun with %d, %s: got %d %q, want %q", turn, request, w.Code, w.Body, want)
			}
		}
	}
}
