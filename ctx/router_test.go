package megactx_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/go-cmp/cmp"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
)

func str(v any) string { return fmt.Sprint(v) }

// marking returns a wrapper that leaves its mark in a header.
func marking(mark string) func(megactx.Handler) megactx.Handler {
	return func(next megactx.Handler) megactx.Handler {
		return func(c *megactx.Ctx) error {
			c.Writer().Header().Add("Marks", mark)
			return next(c)
		}
	}
}

func TestWrappersRunFromTheOutside(t *testing.T) {
	s := newStage(marking("app"))
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c, ok := megactx.From(r.Context()); !ok || c.App.Name != "web" {
				t.Error("a plain middleware does not find the Ctx")
			}
			w.Header().Add("Marks", "std")
			next.ServeHTTP(w, r)
		})
	})
	s.router.Use(marking("router"))
	s.router.Route("/in", func(in megactx.Router) {
		in.Use(marking("inner"))
		in.Get("/{id}", func(c *megactx.Ctx) error { return c.Text(200, c.Param("id")) })
	})
	s.router.Get("/out", func(c *megactx.Ctx) error { return nil })
	for target, want := range map[string]string{"/in/7": "std,app,router,inner", "/out": "std,app,router", "/nowhere": "std"} {
		if got := strings.Join(s.ask("GET", target, "").Header()["Marks"], ","); got != want {
			t.Errorf("%s: got %s, want %s", target, got, want)
		}
	}
	if line := s.ask("GET", "/in/7", ""); line.Body.String() != "7" {
		t.Errorf("the parameter is %s", line.Body)
	}
}

// The middleware may check who may read the public files.
func TestPlainMiddlewareServesAnAppWithoutARoute(t *testing.T) {
	s := newStage()
	public, err := request.ReadPublic(fstest.MapFS{"report.txt": {Data: []byte("secret")}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Public = public
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	for _, target := range []string{"/report.txt", "/nowhere"} {
		if w := s.ask("GET", target, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: got %d %s", target, w.Code, w.Body)
		}
	}
	if w := s.ask("GET", "/report.txt", "", "Authorization: Basic x"); w.Body.String() != "secret" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestPlainMiddlewareOfTheAppRunsBeforeTheRouteIsFound(t *testing.T) {
	s := newStage()
	var seen []string
	look := func(at string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen = append(seen, at+":"+r.PathValue("shop")+":"+r.PathValue("id"))
				if r.URL.Query().Get("refused") == at {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	s.router.UseStd(look("app"))
	s.router.Route("/{shop}", func(in megactx.Router) {
		in.UseStd(look("group"))
		in.Get("/{id}", megactx.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			look("route")(http.NotFoundHandler()).ServeHTTP(w, r)
		})))
	})
	s.ask("GET", "/a/7", "")
	if got := strings.Join(seen, " "); got != "app:: group:a:7 route:a:7" {
		t.Errorf("the parameters are %s", got)
	}
	s.ask("GET", "/a/7?refused=group", "")
	if line := s.log.String(); !strings.Contains(line, `"route":"","status":418`) {
		t.Errorf("the log has\n%s", line)
	}
}

// A group's middleware serves all paths below its prefix, and is made once, so that what
// it counts is the count of the group.
func TestPlainMiddlewareOfAGroupServesPathsWithoutARoute(t *testing.T) {
	s := newStage()
	made := 0
	mark := func(of string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			made++
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Add("Marks", of+r.PathValue("shop"))
				if r.Method == http.MethodOptions { // as for CORS
					w.WriteHeader(http.StatusNoContent)
					return
				}
				c, _ := megactx.From(r.Context())
				next.ServeHTTP(w, r.WithContext(c.WithContext(c)))
			})
		}
	}
	s.router.Route("/api/{shop}", func(r megactx.Router) {
		r.UseStd(mark("a"))
		r.UseStd(mark("b"))
		r.Get("/", named("root"))
		r.Get("/orders/{id}", named("order"))
		r.Route("/deep", func(r megactx.Router) {
			r.UseStd(mark("c"))
			r.Get("/{id}", named("deep"))
			r.Route("/plain", func(r megactx.Router) { r.Post("/{id}", named("plain")) })
		})
	})
	s.router.Route("/api/{shop}", func(r megactx.Router) { r.Get("/open", named("open")) })
	for request, want := range map[string]string{
		"GET /api/1":               "200 a1,b1",
		"GET /api/1/orders/7":      "200 a1,b1",
		"GET /api/1/nothing":       "404 a1,b1",
		"GET /api/1/orders//":      "404 a1,b1",
		"PUT /api/1/orders/7":      "405 a1,b1",
		"OPTIONS /api/1/orders/7":  "204 a1",
		"GET /api/1/deep/7":        "200 a1,b1,c1",
		"GET /api/1/deep":          "404 a1,b1,c1",
		"GET /api/1/deep/7/8":      "404 a1,b1,c1",
		"POST /api/1/deep/plain/7": "200 a1,b1,c1",
		"GET /api/1/open":          "200 ",
		"GET /api":                 "404 ",
		"BREW /api/1/x":            "404 a1,b1",
	} {
		method, target, _ := strings.Cut(request, " ")
		w := s.ask(method, target, "", "Sec-Fetch-Site: same-origin")
		if got := fmt.Sprint(w.Code, " ", strings.Join(w.Header()["Marks"], ",")); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
	if made != 3 {
		t.Errorf("three middlewares were made %d times", made)
	}
	s.ask("GET", "/api/1/nothing", "")
	if line := s.last(t); line["route"] != "" {
		t.Errorf("the log of a path without a route has %v", line)
	}
}

func TestWrapperSeesTheErrorAndMayAnswer(t *testing.T) {
	s := newStage(func(next megactx.Handler) megactx.Handler {
		return func(c *megactx.Ctx) error {
			if err := next(c); err != nil {
				return c.Text(299, "caught "+err.Error())
			}
			return nil
		}
	})
	s.router.Get("/", func(*megactx.Ctx) error { return fmt.Errorf("x") })
	if w := s.ask("GET", "/", ""); w.Code != 299 || w.Body.String() != "caught x" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestRouterRefusesInvalidRoutes(t *testing.T) {
	nothing := func(*megactx.Ctx) error { return nil }
	wants := map[string]string{
		"a wrapper without a handler":          "Use returns no handler",
		"a plain wrapper without a handler":    "UseStd returns no handler",
		"the same in a group":                  "UseStd returns no handler",
		"a nil http.Handler":                   "WrapHandler has no http.Handler",
		"a parameter of Gin":                   `: ":id" is not a parameter (write {id})`,
		"a parameter of Gin in a group":        `:shop" is not a parameter (write {shop})`,
		"the rest as in net/http":              `write *, and read Param("*")`,
		"the end as in net/http":               "{$} is not a parameter (leave it out",
		"a parameter without a name":           `"" is not the name of a parameter`,
		"a parameter with a blank":             `"order id" is not the name of a parameter`,
		"a route without a handler":            "GET /orders/{id} has no handler",
		"a pattern without a slash":            "router_test.go:",
		"a pattern with a method":              "call Get, Post, Put, Patch or Delete",
		"a parameter that is no one":           "GET /orders/{id at ",
		"a group without a slash":              `the prefix "x" of the group at `,
		"a pattern in a group without a slash": `the pattern "y" of the route at `,
		"a parameter twice":                    "GET /{id}/{id} at ",
		"a group with a rest in its prefix":    "GET /x/*/y at ",
	}
	for name, do := range map[string]func(megactx.Router){
		"a wrapper without a handler": func(r megactx.Router) {
			r.Use(func(megactx.Handler) megactx.Handler { return nil })
			r.Get("/", nothing)
		},
		"a plain wrapper without a handler": func(r megactx.Router) {
			r.UseStd(func(http.Handler) http.Handler { return nil })
			r.Get("/", nothing)
		},
		"the same in a group": func(r megactx.Router) {
			r.Route("/x", func(r megactx.Router) { r.UseStd(func(http.Handler) http.Handler { return nil }) })
		},
		"a nil http.Handler":            func(r megactx.Router) { r.Get("/", megactx.WrapHandler(nil)) },
		"a parameter of Gin":            func(r megactx.Router) { r.Get("/orders/:id", nothing) },
		"a parameter of Gin in a group": func(r megactx.Router) { r.Route("/:shop", func(r megactx.Router) { r.Get("/x", nothing) }) },
		"the rest as in net/http":       func(r megactx.Router) { r.Get("/files/{path...}", nothing) },
		"the end as in net/http":        func(r megactx.Router) { r.Get("/orders/{$}", nothing) },
		"a parameter without a name":    func(r megactx.Router) { r.Get("/orders/{}", nothing) },
		"a parameter with a blank":      func(r megactx.Router) { r.Get("/orders/{order id}", nothing) },
		"Use after a route":             func(r megactx.Router) { r.Get("/", nothing); r.Use(marking("late")) },
		"Use after a group":             func(r megactx.Router) { r.Route("/a", func(megactx.Router) {}); r.Use(marking("late")) },
		"UseStd after a route":          func(r megactx.Router) { r.Get("/", nothing); r.UseStd(func(h http.Handler) http.Handler { return h }) },
		"a pattern without a slash":     func(r megactx.Router) { r.Get("x", nothing) },
		"a pattern with a method":       func(r megactx.Router) { r.Handle("GET /orders", nothing) },
		"a route without a handler":     func(r megactx.Router) { r.Route("/orders", func(r megactx.Router) { r.Get("/{id}", nil) }) },
		"a parameter that is no one": func(r megactx.Router) {
			r.Route("/orders", func(r megactx.Router) { r.Get("/{id", nothing) })
		},
		"a group without a slash":              func(r megactx.Router) { r.Route("x", func(r megactx.Router) {}) },
		"a pattern in a group without a slash": func(r megactx.Router) { r.Route("/x", func(r megactx.Router) { r.Get("y", nothing) }) },
		"a parameter twice":                    func(r megactx.Router) { r.Route("/{id}", func(r megactx.Router) { r.Get("/{id}", nothing) }) },
		"a group with a rest in its prefix":    func(r megactx.Router) { r.Route("/x/*", func(r megactx.Router) { r.Get("/y", nothing) }) },
		"UseStd of a group after a route": func(r megactx.Router) {
			r.Route("/x", func(r megactx.Router) { r.Get("/", nothing); r.UseStd(func(h http.Handler) http.Handler { return h }) })
		},
	} {
		func() {
			defer func() {
				switch text := fmt.Sprint(recover()); {
				case text == "<nil>":
					t.Errorf("%s: no panic", name)
				case !strings.Contains(text, wants[name]):
					t.Errorf("%s: %s", name, text)
				}
			}()
			do(newStage().router)
		}()
	}
}

func TestRouteAnswersItsMethodsAlone(t *testing.T) {
	s := newStage()
	echo := func(c *megactx.Ctx) error { return c.Text(200, c.Request().Method) }
	s.router.Get("/get", echo)
	s.router.Post("/post", echo)
	s.router.Put("/put", echo)
	s.router.Patch("/patch", echo)
	s.router.Delete("/delete", echo)
	s.router.Handle("/any", echo)
	s.router.Route("/in", func(in megactx.Router) { in.Handle("/any", echo) })
	s.router.Get("/files/*", func(c *megactx.Ctx) error { return c.Text(200, c.Param("*")+c.Query("q")) })
	for _, x := range []struct {
		method, target string
		status         int
		body           string
	}{
		{"GET", "/get", 200, "GET"}, {"HEAD", "/get", 200, "HEAD"}, {"POST", "/post", 200, "POST"}, {"PUT", "/put", 200, "PUT"},
		{"PATCH", "/patch", 200, "PATCH"}, {"DELETE", "/delete", 200, "DELETE"}, {"OPTIONS", "/any", 200, "OPTIONS"},
		{"PROPFIND", "/any", 200, "PROPFIND"}, {"get", "/any", 200, "get"}, {"PROPFIND", "/in/any", 200, "PROPFIND"}, {"QUERY", "/any", 200, "QUERY"},
		{"GET", "/files/a/b%20c?q=1", 200, "a/b c1"}, {"GET", "/files/a%2Fb", 200, "a/b"},
	} {
		if w := s.ask(x.method, x.target, ""); w.Code != x.status || w.Body.String() != x.body {
			t.Errorf("%s %s: got %d %s, want %d %s", x.method, x.target, w.Code, w.Body, x.status, x.body)
		}
	}
	w := s.ask("DELETE", "/get", "", wantJSON)
	if p := problemIn(t, w); p.Status != 405 || p.Code != "request.method_not_allowed" || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("got %+v, allowed %q", p, w.Header().Get("Allow"))
	}
	if p := problemIn(t, s.ask("BREW", "/get", "", wantJSON)); p.Status != 405 {
		t.Errorf("an unknown method: got %+v", p)
	}
	if p := problemIn(t, s.ask("BREW", "/nothing", "", wantJSON)); p.Status != 404 {
		t.Errorf("an unknown method at an unknown path: got %+v", p)
	}
}

type handlers struct{}

func (*handlers) Buy(*megactx.Ctx) error { return nil }

func list(*megactx.Ctx) error { return nil }

func TestRoutesAreListedAsTheyWereAdded(t *testing.T) {
	var h *handlers
	r := newStage().router
	r.Use(marking("x")) // the name is that of the handler, not of what wraps it
	r.Post("/products/{id}/buy", h.Buy)
	r.Route("/admin", func(r megactx.Router) {
		r.Get("/", list)
		r.Route("/v1", func(r megactx.Router) { r.Delete("/x", list) })
		r.Handle("/any", megactx.WrapHandler(http.NotFoundHandler()))
	})
	r.Get("/", func(*megactx.Ctx) error { return nil })
	want := []router.Route{
		{Method: "POST", Pattern: "/products/{id}/buy", Handler: "ctx_test.(*handlers).Buy"},
		{Method: "GET", Pattern: "/admin", Handler: "ctx_test.list"},
		{Method: "DELETE", Pattern: "/admin/v1/x", Handler: "ctx_test.list"},
		{Method: "*", Pattern: "/admin/any", Handler: "http.Handler"},
		{Method: "GET", Pattern: "/", Handler: "ctx_test.TestRoutesAreListedAsTheyWereAdded.func2"},
	}
	got := r.Routes()
	for i := range got {
		if !strings.Contains(got[i].Site, "router_test.go:") {
			t.Errorf("route %d is at %q", i, got[i].Site)
		}
		got[i].Site = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParametersAreThoseOfTheRoute(t *testing.T) {
	s := newStage()
	echo := func(c *megactx.Ctx) error {
		return c.Text(200, c.Param("a")+"|"+c.Param("b")+"|"+c.Param("*")+"|"+c.Param("none"))
	}
	s.router.Route("/x/{a}", func(r megactx.Router) {
		r.Get("/{b}", echo)
	})
	s.router.Route("/in/{a}", func(r megactx.Router) {
		r.Route("/{b}", func(r megactx.Router) { r.Get("/files/*", echo) })
	})
	s.router.Get("/std/{a}", megactx.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := megactx.From(r.Context())
		fmt.Fprint(w, r.PathValue("a")+"|"+c.Param("a"))
	})))
	s.router.Get("/digits/{a:[0-9]+}/b", echo)
	s.router.Get("/cancel/{order-id}:now/{name:[a-z]{2}}.{é_1}", func(c *megactx.Ctx) error {
		return c.Text(200, c.Param("order-id")+"|"+c.Param("name")+"|"+c.Param("é_1"))
	})
	for target, want := range map[string]string{
		"/cancel/7:now/ab.md": "7|ab|md",
		"/x/1/2":              "1|2||", "/digits/7/b": "7|||", "/in/1/2/files/3/4": "1|2|3/4|", "/x/a%2Fb/%ED%95%9C": "a/b|한||", "/std/7": "7|7", "/std/a%2Fb": "a/b|a/b", "/std/%ed%95%9c": "한|한", "/x/100%25/b": "100%|b||",
	} {
		if w := s.ask("GET", target, ""); w.Body.String() != want {
			t.Errorf("%s: got %s, want %s", target, w.Body, want)
		}
	}
	s.router.Get("/상품/{a:[a-z]+}", echo)
	for target, want := range map[string]string{ // escapes that are not needed, and lower-case ones
		"/상품/ab": "ab", "/%ec%83%81%ed%92%88/ab": "ab", "/%EC%83%81%ED%92%88/%61%62": "ab", "/%78/1%2F%25/2": "1/%|2", "/std/%61%2F%62": "a/b|a/b",
	} {
		if w := s.ask("GET", target, ""); strings.Trim(w.Body.String(), "|") != want {
			t.Errorf("%s: got %d %s, want %s", target, w.Code, w.Body, want)
		}
	}
	if w := s.ask("PUT", "/%78/1/2", "", "Sec-Fetch-Site: same-origin"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("another method: got %d, allowed %q", w.Code, w.Header().Get("Allow"))
	}
	for _, target := range []string{"/digits//b", "/in//2/files/3", "/x//2"} {
		if w := s.ask("GET", target, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d %s for an empty parameter", target, w.Code, w.Body)
		}
		if line := s.last(t); line["route"] != "" {
			t.Errorf("%s: the log has the route %v", target, line["route"])
		}
	}
}

// A wrapper passes a plain handler the Ctx that it has derived, as it does a Handler.
func TestPlainHandlerContinuesTheCtxOfAWrapper(t *testing.T) {
	locker, _ := newLocker(t)
	s := newStage(func(next megactx.Handler) megactx.Handler {
		return func(c *megactx.Ctx) error {
			return c.Lock.With("old", func(c *megactx.Ctx) error { return next(c) })
		}
	})
	s.host.Locker = locker
	var upload *os.File
	s.router.Post("/old/{id}", megactx.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := megactx.From(r.Context())
		lease, ok := c.Lease()
		if !ok || lease.Key() != "old" || c.Param("id") != "7" || r.PathValue("id") != "7" {
			t.Errorf("the lease is %v, %v", lease, ok)
			return
		}
		if err := r.ParseMultipartForm(1); err != nil {
			t.Fatal(err)
		}
		file, err := r.MultipartForm.File["f"][0].Open()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		upload, _ = file.(*os.File)
		if _, err := locker.ForceRelease(context.Background(), "old", "test"); err != nil {
			t.Error(err)
		}
		<-r.Context().Done() // at the loss of the lease
		w.WriteHeader(http.StatusNoContent)
	})))
	body := "--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n" + strings.Repeat("x", 1<<16) + "\r\n--b--\r\n"
	if w := s.ask("POST", "/old/7", body, "Content-Type: multipart/form-data; boundary=b"); w.Code != http.StatusNoContent {
		t.Errorf("got %d: %s", w.Code, w.Body)
	}
	if upload == nil {
		t.Fatal("the upload is not in a file")
	}
	if _, err := os.Stat(upload.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file of the upload is left: %v", err)
	}
}

// A middleware of net/http gives the handler what it has added to the Ctx.
func TestHandlerContinuesTheCtxOfAMiddleware(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, ok := megactx.From(r.Context())
			if !ok {
				t.Error("a middleware has no Ctx")
			}
			c = c.WithContext(c)
			c.Log = c.Log.With("user", "ann")
			next.ServeHTTP(w, r.WithContext(c))
		})
	})
	s.router.Get("/orders/{id}", func(c *megactx.Ctx) error {
		c.Log.Info("seen")
		again, _ := megactx.From(c.Request().Context())
		return c.Text(http.StatusOK, c.Param("id")+" "+again.Param("id"))
	})
	if w := s.ask("GET", "/orders/7", "", "X-Request-Id: r-1"); w.Body.String() != "7 7" {
		t.Errorf("got %s", w.Body)
	}
	if line := s.log.String(); !strings.Contains(line, `"msg":"seen","request":"r-1","user":"ann","route":"/orders/{id}"`) {
		t.Errorf("the log has\n%s", line)
	}
}

// A middleware may leave the handlers behind, as http.TimeoutHandler does when its time
// is over. They find the route of their own request.
func TestHandlersThatAMiddlewareLeavesBehindHaveTheirOwnRoute(t *testing.T) {
	s := newStage()
	var left sync.WaitGroup
	wait := map[string]chan struct{}{"/a/1": make(chan struct{}), "/b/2/x": make(chan struct{})}
	arrived := make(chan struct{})
	s.router.UseStd(func(next http.Handler) http.Handler { // does not wait
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			left.Go(func() { next.ServeHTTP(httptest.NewRecorder(), r) })
			<-arrived
		})
	})
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-wait[r.URL.Path]
			next.ServeHTTP(w, r)
		})
	})
	got := make(chan string, 1)
	found := func(c *megactx.Ctx) error { got <- c.Request().Pattern + " " + c.Param("id"); return nil }
	s.router.Get("/a/{id}", found)
	s.router.Get("/b/{id}/x", found)
	s.ask("GET", "/a/1", "")
	s.ask("GET", "/b/2/x", "")
	close(wait["/a/1"])
	if route := <-got; route != "/a/{id} 1" {
		t.Errorf("/a/1 is %s", route)
	}
	close(wait["/b/2/x"])
	if route := <-got; route != "/b/{id}/x 2" {
		t.Errorf("/b/2/x is %s", route)
	}
	left.Wait()
}

// A middleware of the app runs before the route is found, so it may change what the route
// is found by.
func TestPlainMiddlewareMayChangeThePathAndTheMethod(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(next http.Handler) http.Handler { return http.StripPrefix("/v1", next) })
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Method = r.Header.Get("X-HTTP-Method-Override")
			next.ServeHTTP(w, r)
		})
	})
	s.router.Put("/a/{id}", func(c *megactx.Ctx) error { return c.Text(200, c.Param("id")) })
	s.router.Handle("/dav/{id}", func(c *megactx.Ctx) error { return c.Text(200, c.Request().Method) })
	for target, id := range map[string]string{"/v1/a/7": "7", "/v1/a/%37": "7", "/v1/a/7%2F8": "7/8", "/v1/a/%2537": "%37"} {
		if w := s.ask("POST", target, "", "X-HTTP-Method-Override: PUT"); w.Body.String() != id {
			t.Errorf("%s: got %d %s", target, w.Code, w.Body)
		}
	}
	if w := s.ask("POST", "/v1/dav/7", "", "X-HTTP-Method-Override: PROPFIND"); w.Body.String() != "PROPFIND" {
		t.Errorf("a method without routes of its own: got %d %s", w.Code, w.Body)
	}
	if w := s.ask("OPTIONS", "/v1/a/7", "", "X-HTTP-Method-Override: PUT"); w.Body.String() != "7" {
		t.Errorf("in place of such a method: got %d %s", w.Code, w.Body)
	}
}

// A middleware that changes the decoded path alone leaves the escaped one of the client behind.
func TestEscapedPathDoesNotBypassAMiddlewareThatChangesThePath(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/old" {
				r.URL.Path = "/new"
			}
			next.ServeHTTP(w, r)
		})
	})
	for _, path := range []string{"/old", "/new"} {
		s.router.Get(path, func(c *megactx.Ctx) error { return c.Text(200, path) })
	}
	for _, target := range []string{"/old", "/ol%64"} {
		if w := s.ask("GET", target, ""); w.Body.String() != "/new" {
			t.Errorf("%s: got %d %s", target, w.Code, w.Body)
		}
	}
}

// Without the context there is no Ctx for the handler.
func TestMiddlewareThatReplacesTheContextIsNamed(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.Background()))
		})
	})
	s.router.Get("/", func(c *megactx.Ctx) error { return c.Text(200, "x") })
	w := s.ask("GET", "/", "")
	if says := fmt.Sprint(s.last(t)); w.Code != 500 || !strings.Contains(says, "a middleware has replaced the context") {
		t.Errorf("got %d %q, logged %s", w.Code, w.Body, says)
	}
}

// chi's StripSlashes changes the path by which chi finds a route, not the one of the request.
func TestChisMiddlewareChangesAnEscapedPath(t *testing.T) {
	s := newStage()
	s.router.UseStd(middleware.StripSlashes)
	s.router.Get("/a/{id}", func(c *megactx.Ctx) error { return c.Text(200, c.Param("id")) })
	for target, id := range map[string]string{"/a/7/": "7", "/a/%37/": "7", "/a/7%2F8/": "7/8", "/a/%2537/": "%37"} {
		if w := s.ask("GET", target, ""); w.Body.String() != id {
			t.Errorf("%s: got %d %s", target, w.Code, w.Body)
		}
		if w := s.ask("PUT", target, "", "Sec-Fetch-Site: same-origin"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: another method: got %d, allowed %q", target, w.Code, w.Header().Get("Allow"))
		}
	}
}

// The middleware of a group runs after the search for a route.
func TestAllowedMethodsAreThoseOfThePathThatWasSearched(t *testing.T) {
	again := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			chi.RouteContext(r.Context()).RoutePath = "" // chi then takes the path of the request
			next.ServeHTTP(w, r)
		})
	}
	get := func(r megactx.Router) {
		r.Get("/a/{id}/", func(c *megactx.Ctx) error { return c.Text(200, c.Param("id")) })
	}
	for name, middleware := range map[string]func(http.Handler) http.Handler{"StripSlashes": middleware.StripSlashes, "again": again} {
		s := newStage()
		s.router.Route("/group", func(r megactx.Router) { r.UseStd(middleware); get(r) })
		if w := s.ask("PUT", "/group/a/7/", "", "Sec-Fetch-Site: same-origin"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s of a group: got %d, allowed %q", name, w.Code, w.Header().Get("Allow"))
		}
	}
	s := newStage()
	s.router.UseStd(again)
	get(s.router)
	if w := s.ask("PUT", "/a/7%2F8/", "", "Sec-Fetch-Site: same-origin"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("again: got %d, allowed %q", w.Code, w.Header().Get("Allow"))
	}
}

func TestPlainMiddlewareMayServeAnotherPathAndMethodAfterwards(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			first := r.Clone(r.Context())
			first.Method, first.URL = "PUT", &url.URL{Path: "/a/7/8", RawPath: "/a/7%2F8"}
			next.ServeHTTP(httptest.NewRecorder(), first)
			next.ServeHTTP(w, r)
		})
	})
	s.router.Put("/a/{id}", func(*megactx.Ctx) error { return nil })
	s.router.Get("/b/{id}", func(c *megactx.Ctx) error { return c.Text(200, c.Param("id")+" "+c.Request().Pattern) })
	for _, target := range []string{"/b/9", "/b/%39"} {
		if w := s.ask("GET", target, ""); w.Body.String() != "9 /b/{id}" {
			t.Errorf("%s: got %d %s", target, w.Code, w.Body)
		}
	}
}
