package megactx_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
)

func TestRequestsAnsweredInJSON(t *testing.T) {
	for _, x := range []struct {
		accept, content string
		json            bool
	}{
		{"", "", false},
		{"*/*", "", false},
		{browser, "", false},
		{"application/json", "", true},
		{"application/problem+json", "", true},
		{"application/json, text/plain, */*", "", true},
		{"text/html;q=0.5, application/json", "", true},
		{"text/html, application/json;q=0.5", "", false},
		{"application/json;q=0", "", false},
		{"Application/JSON; charset=utf-8", "", true},
		{"nonsense;;", "", false},
		{browser, "application/json", true},
		{"", "application/json; charset=utf-8", true},
		{"", "application/merge-patch+json", true},
		{"", "application/x-www-form-urlencoded", false},
		{"application/json", "application/x-www-form-urlencoded", true},
	} {
		s := newStage()
		var got bool
		s.router.Post("/", func(c *megactx.Ctx) error { got = c.WantsJSON(); return errors.New("x") })
		w := s.ask("POST", "/", "{}", "Accept: "+x.accept, "Content-Type: "+x.content)
		if got != x.json || strings.HasPrefix(w.Body.String(), "{") != x.json {
			t.Errorf("Accept %q, Content-Type %q: JSON is %v, want %v, and the error is %s", x.accept, x.content, got, x.json, w.Body)
		}
	}
}

// order is what the tests bind.
type order struct {
	Name   string  `json:"name"`
	Count  int     `json:"count"`
	Weight float64 `json:"weight"`
	Gift   bool    `json:"gift"`
	Note   *string `json:"note" form:"remark"`
	Level  level   `json:"level"`
	hidden int
	Skip   string `json:"-"`
}

type level int

func (l *level) UnmarshalText(text []byte) error {
	if string(text) != "high" {
		return errors.New("has to be high")
	}
	*l = 1
	return nil
}

func (o *order) Validate() error {
	wrong := megactx.FieldErrors{}
	if o.Count > 9 {
		wrong["count"] = "is more than 9"
	}
	if o.hidden != 0 {
		wrong["hidden"] = "was found"
	}
	return wrong.Or()
}

func TestBindReadsJSONAndFormsAndExplainsMistakes(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	multipart := "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nlamp\r\n--b--\r\n"
	for _, x := range []struct {
		name, content, body string
		status              int
		says                string
	}{
		{"JSON", "application/json", `{"name":"lamp","count":2,"level":"high"}`, 200, "lamp 2 0 false - 1"},
		{"a form", form, "name=+lamp+&count=2&weight=1.5&gift=on&remark=hi&level=high&hidden=1&Skip=x", 200, "lamp 2 1.5 true hi 1"},
		{"a form of parts", "multipart/form-data; boundary=b", multipart, 200, "lamp 0 0 false - 0"},
		{"a form with an empty number", form, "name=&count=", 200, " 0 0 false - 0"},
		{"nothing", "", "", 200, " 0 0 false - 0"},
		{"an empty body that says it is JSON", "application/json", "", 400, "The body is empty."},
		{"no JSON", "application/json", "{", 400, "not valid JSON"},
		{"two values", "application/json", "{} {}", 400, "more than one"},
		{"a wrong type", "application/json", `{"count":"two"}`, 422, `"errors":{"count":"must be a whole number"}`},
		{"an unknown field", "application/json", `{"nmae":"lamp"}`, 400, `"errors":{"nmae":"is unknown"}`},
		{"a list", "application/json", `[]`, 400, "request.bad_body"},
		{"null", "application/json", ` null `, 400, "request.bad_body"},
		{"an unknown type", "text/plain", "x", 415, "request.unsupported_media_type"},
		{"no type", "", "x", 415, "request.unsupported_media_type"},
		{"too much JSON", "application/json", `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "request.too_large"},
		{"too much form", form, "name=" + strings.Repeat("x", 1<<20), 413, "request.too_large"},
		{"a broken form", form, "name=%zz", 400, "request.bad_body"},
		{"a form with text for numbers", form, "count=two&weight=heavy&level=low", 422, `"errors":{"count":"must be a whole number","level":"has to be high","weight":"must be a number"}`},
		{"what Validate refuses", "application/json", `{"count":10}`, 422, `"errors":{"count":"is more than 9"}`},
		{"what Validate refuses of a form", form, "count=10", 422, "request.invalid"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newStage()
			s.router.Post("/", func(c *megactx.Ctx) error {
				var o order
				if err := c.Bind(&o); err != nil {
					return err
				}
				note := "-"
				if o.Note != nil {
					note = *o.Note
				}
				return c.Text(200, strings.Join([]string{o.Name, str(o.Count), str(o.Weight), str(o.Gift), note, str(int(o.Level))}, " "))
			})
			headers := []string{wantJSON}
			if x.content != "" {
				headers = append(headers, "Content-Type: "+x.content)
			}
			for _, target := range []string{"/", "/?discount=100%"} { // a malformed query is not a part of the body
				w := s.ask("POST", target, x.body, headers...)
				if w.Code != x.status || !strings.Contains(w.Body.String(), x.says) {
					t.Errorf("%s: got %d %s, want %d with %s", target, w.Code, w.Body, x.status, x.says)
				}
			}
		})
	}
}

func TestBindNeedsAPointerToAStruct(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error {
		for _, v := range []any{nil, order{}, new(int), map[string]string{}} {
			if err := c.Bind(v); err == nil || !strings.Contains(err.Error(), "pointer to a struct") {
				t.Errorf("%T: got %v", v, err)
			}
		}
		return nil
	})
	s.ask("POST", "/", "{}", "Content-Type: application/json")
}

func TestFailedEncodingSendsNoPartialAnswer(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(c *megactx.Ctx) error { return c.JSON(200, math.NaN()) })
	if p := problemIn(t, s.ask("GET", "/", "", wantJSON)); p.Status != 500 {
		t.Errorf("got %+v", p)
	}
}

// net/http panics at a status such as 0, in the middle of the answer.
func TestStatusOfAnAnswerIsOne(t *testing.T) {
	for _, status := range []int{-1, 0, 100, 199, 1000} {
		s := newStage()
		s.router.Get("/", func(c *megactx.Ctx) error {
			if err := c.Text(status, "body"); err == nil {
				t.Errorf("%d: no error", status)
			}
			return c.JSON(http.StatusAccepted, "after it")
		})
		if w := s.ask("GET", "/", ""); w.Code != http.StatusAccepted || w.Body.String() != `"after it"` {
			t.Errorf("%d: got %d %s", status, w.Code, w.Body)
		}
	}
}

// An error that is answered 200 would look like a success to the client.
func TestStatusOfAnErrorIsOne(t *testing.T) {
	for status, want := range map[int]int{0: 500, 99: 500, 200: 500, 303: 500, 399: 500, 400: 400, 599: 599, 600: 500, 1000: 500} {
		s := newStage()
		s.router.Get("/", func(*megactx.Ctx) error {
			return fmt.Errorf("buy: %w", megactx.Error(status, "stock.none", "None is left."))
		})
		code := "stock.none"
		if status != want {
			code = "internal"
		}
		if p := problemIn(t, s.ask("GET", "/", "", wantJSON)); p.Status != want || p.Code != code {
			t.Errorf("%d: got %+v, want %d %s", status, p, want, code)
		}
	}
}

// A browser takes a backslash for a slash, and what follows two of them for a host.
func TestRedirectToAPathStaysInTheApp(t *testing.T) {
	s := newStage()
	s.router.Get("/there", func(c *megactx.Ctx) error { return c.Redirect(http.StatusSeeOther, `/\evil.example/x`) })
	if w := s.ask("GET", "/there", ""); w.Header().Get("Location") != "/%5Cevil.example/x" {
		t.Errorf("got %d %s", w.Code, w.Header().Get("Location"))
	}
}

func TestRedirectIsOne(t *testing.T) {
	s := newStage()
	s.router.Get("/there", func(c *megactx.Ctx) error { return c.Redirect(http.StatusSeeOther, "/here?x=1") })
	s.router.Get("/wrong", func(c *megactx.Ctx) error { return c.Redirect(http.StatusOK, "/here") })
	if w := s.ask("GET", "/there", ""); w.Code != 303 || w.Header().Get("Location") != "/here?x=1" {
		t.Errorf("got %d %s", w.Code, w.Header().Get("Location"))
	}
	if w := s.ask("GET", "/wrong", ""); w.Code != 500 {
		t.Errorf("a redirect of status 200: got %d", w.Code)
	}
}

var pages = fstest.MapFS{
	"views/shared/layout.html": {Data: []byte(`{{define "layout"}}<title>{{block "title" .}}none{{end}}</title>{{template "mark"}}{{block "content" .}}{{end}}{{end}}`)},
	"views/shared/mark.html":   {Data: []byte(`{{define "mark"}}[m]{{end}}`)},
	"views/one.html":           {Data: []byte(`{{define "title"}}One{{end}}{{define "content"}}{{.Name}}{{end}}`)},
	"views/deep/two.html":      {Data: []byte(`{{define "content"}}two{{end}}`)},
	"views/error.html":         {Data: []byte(`{{define "content"}}{{.Status}} {{.Code}}{{end}}`)},
	"views/notes.txt":          {Data: []byte(`{{ not a view`)},
}

func TestPagesShareALayout(t *testing.T) {
	s := newStage()
	views, err := request.ParseViews(pages)
	if err != nil {
		t.Fatal(err)
	}
	s.host.Views = views
	s.router.Get("/one", func(c *megactx.Ctx) error { return c.HTML(201, "one", map[string]string{"Name": "<b>"}) })
	s.router.Get("/two", func(c *megactx.Ctx) error { return c.HTML(200, "deep/two", nil) })
	s.router.Get("/broken", func(c *megactx.Ctx) error { return c.HTML(200, "one", 5) })
	s.router.Get("/missing", func(c *megactx.Ctx) error { return c.HTML(200, "three", nil) })
	for target, want := range map[string]string{
		"/one":     "<title>One</title>[m]&lt;b&gt;",
		"/two":     "<title>none</title>[m]two",
		"/broken":  "<title>none</title>[m]500 internal",
		"/missing": "<title>none</title>[m]500 mega.unknown_view",
		"/nowhere": "<title>none</title>[m]404 request.not_found",
	} {
		if w := s.ask("GET", target, ""); w.Body.String() != want || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: got %s, want %s", target, w.Body, want)
		}
	}
}

func TestAPageOfAnAppWithoutViewsNamesWhatIsMissing(t *testing.T) {
	s := newStage()
	var err error
	s.router.Get("/", func(c *megactx.Ctx) error { err = c.HTML(200, "one", nil); return err })
	if w := s.ask("GET", "/", ""); w.Code != 500 || !errors.Is(err, megactx.ErrNotConfigured) || !strings.Contains(err.Error(), "mega.Views") {
		t.Errorf("got %d: %v", w.Code, err)
	}
}

func TestViewsThatDoNotParseAreRefused(t *testing.T) {
	for _, file := range []string{"one.html", "shared/one.html"} {
		_, err := request.ParseViews(fstest.MapFS{file: {Data: []byte("{{")}, "other.html": {}})
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(file, ".html")) {
			t.Errorf("%s: got %v", file, err)
		}
	}
}

func TestErrorsHaveAPlainPage(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(*megactx.Ctx) error { return megactx.Error(418, "tea.pot", "<short> and stout") })
	w := s.ask("GET", "/", "")
	for _, want := range []string{"<h1>I&#39;m a teapot</h1>", "&lt;short&gt; and stout", "418 · tea.pot · request "} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the page has no %q:\n%s", want, w.Body)
		}
	}
	if w.Code != 418 {
		t.Errorf("got %d", w.Code)
	}
}

// An escaped slash separates no parts of a path, so that the path of a file is below the
// prefix of the group that checks who may read it.
func TestPublicFileIsNotServedWithAnEscapedSlash(t *testing.T) {
	s := newStage()
	public, err := request.ReadPublic(fstest.MapFS{"app.css": {}, "admin/report.txt": {Data: []byte("secret")}, "admin/50%2F50.txt": {Data: []byte("half")}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Public = public
	s.router.Route("/admin", func(r megactx.Router) {
		r.UseStd(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Checked", "yes")
				next.ServeHTTP(w, r)
			})
		})
	})
	for target, want := range map[string]int{
		"/admin/report.txt": 200, "/%61dmin/report.txt": 200, "/admin/50%252F50.txt": 200,
		"/admin%2Freport.txt": 404, "/admin%2freport.txt": 404, "/admin/50%2F50.txt": 404,
	} {
		if w := s.ask("GET", target, ""); w.Code != want || want == 200 && w.Header().Get("Checked") == "" {
			t.Errorf("%s: got %d %s", target, w.Code, w.Body)
		}
	}
}

func TestPublicFilesAreServedWhereNoRouteIs(t *testing.T) {
	s := newStage()
	public, err := request.ReadPublic(fstest.MapFS{"public/app.css": {Data: []byte("body{}")}, "public/a/b.txt": {Data: []byte("b")}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Public = public
	s.router.Get("/a/b.txt", func(c *megactx.Ctx) error { return c.Text(200, "a route") })
	s.router.Post("/app.css", func(c *megactx.Ctx) error { return c.Text(200, "another method") })
	w := s.ask("GET", "/app.css", "")
	if w.Code != 200 || w.Body.String() != "body{}" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/css") {
		t.Errorf("got %d %s %s", w.Code, w.Header(), w.Body)
	}
	if again := s.ask("GET", "/app.css", "", "If-None-Match: "+w.Header().Get("ETag")); again.Code != http.StatusNotModified {
		t.Errorf("asked again: got %d", again.Code)
	}
	if w := s.ask("GET", "/a/b.txt", ""); w.Body.String() != "a route" {
		t.Errorf("a file hides a route: %s", w.Body)
	}
	if w := s.ask("DELETE", "/app.css", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a method without a route: got %d", w.Code)
	}
	for _, target := range []string{"/", "/a", "/a/", "/public/app.css", "/../app.css"} {
		if w := s.ask("GET", target, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: got %d", target, w.Code)
		}
	}
}

func TestFilesOfAnUploadAreRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp)
	s := limited(t, request.Limits{Body: 8 << 20})
	var late *megactx.Ctx
	read := func(c *megactx.Ctx) error {
		late = c
		var v struct {
			Name string `form:"name"`
		}
		if err := c.Bind(&v); err != nil {
			return err
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) != 1 {
			t.Errorf("during the request there are %v, %v", left, err)
		}
		file, _, err := c.Request().FormFile("big")
		if err != nil {
			return err
		}
		defer file.Close()
		n, err := io.Copy(io.Discard, file)
		return errors.Join(err, c.Text(200, str(n)))
	}
	s.router.Post("/", read)
	body := "--b\r\nContent-Disposition: form-data; name=\"big\"; filename=\"x\"\r\n\r\n" + strings.Repeat("x", 3<<20) + "\r\n--b--\r\n"
	server := httptest.NewServer(s.router.Handler())
	defer server.Close()
	answer, err := server.Client().Post(server.URL, "multipart/form-data; boundary=b", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if string(text) != str(3<<20) || err != nil {
		t.Errorf("got %s, %v", text, err)
	}
	server.Close()
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("afterwards there are %v, %v", left, err)
	}
	if err := late.Bind(&struct{}{}); !errors.Is(err, megactx.ErrHandlerReturned) {
		t.Errorf("Bind after the end: %v", err)
	}
}

// The request of a middleware is a copy of the one whose files net/http removes.
func TestFilesOfAnUploadThatAMiddlewareRefusesAreRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("TMP", temp)
	s := limited(t, request.Limits{Body: 8 << 20})
	refuse := func(at string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, at) {
					next.ServeHTTP(w, r)
					return
				}
				if err := r.ParseMultipartForm(1 << 10); err != nil {
					t.Error(err)
				}
				if left, err := os.ReadDir(temp); err != nil || len(left) != 1 {
					t.Errorf("during the request there are %v, %v", left, err)
				}
				w.WriteHeader(http.StatusForbidden)
			})
		}
	}
	s.router.UseStd(func(next http.Handler) http.Handler { // puts another Ctx on the request
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, _ := megactx.From(r.Context())
			next.ServeHTTP(w, r.WithContext(c.WithLocale("en")))
		})
	})
	s.router.UseStd(refuse("/app"))
	s.router.Route("/in", func(in megactx.Router) {
		in.UseStd(refuse("/group"))
		in.Post("/group", func(*megactx.Ctx) error { return nil })
	})
	body := "--b\r\nContent-Disposition: form-data; name=\"big\"; filename=\"x\"\r\n\r\n" + strings.Repeat("x", 3<<20) + "\r\n--b--\r\n"
	for _, target := range []string{"/app", "/in/group", "/in/nowhere/group"} {
		if w := s.ask("POST", target, body, "Content-Type: multipart/form-data; boundary=b"); w.Code != http.StatusForbidden {
			t.Errorf("%s is answered %d", target, w.Code)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
			t.Errorf("after %s there are %v, %v", target, left, err)
		}
	}
}

// A page cannot be framed by another site, its type is not guessed, and its
// links give away the origin alone, unless the app says otherwise.
func TestPagesHaveADefaultHeader(t *testing.T) {
	const html = "<!doctype html><title>x</title>"
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "Text/HTML; charset=utf-8")
		_, _ = io.WriteString(w, html)
	}
	for _, x := range []struct {
		name                 string
		handler              megactx.Handler
		csp, sniff, referrer string
	}{
		{"written by a plain handler", megactx.WrapHandler(http.HandlerFunc(page)), "frame-ancestors 'self'", "nosniff", "strict-origin-when-cross-origin"},
		{"of a type that net/http finds", func(c *megactx.Ctx) error { _, err := io.WriteString(c.Writer(), html); return err }, "frame-ancestors 'self'", "nosniff", "strict-origin-when-cross-origin"},
		{"with a status first", func(c *megactx.Ctx) error {
			c.Writer().WriteHeader(http.StatusTeapot)
			_, err := io.WriteString(c.Writer(), html)
			return err
		}, "frame-ancestors 'self'", "nosniff", "strict-origin-when-cross-origin"},
		{"an error", func(*megactx.Ctx) error { return errors.New("x") }, "frame-ancestors 'self'", "nosniff", "strict-origin-when-cross-origin"},
		{"overridden", func(c *megactx.Ctx) error {
			h := c.Writer().Header()
			h.Set("Content-Security-Policy", "default-src 'self'")
			h["Referrer-Policy"] = nil
			page(c.Writer(), nil)
			return nil
		}, "default-src 'self'", "nosniff", ""},
		{"JSON", func(c *megactx.Ctx) error { return c.JSON(200, 1) }, "", "nosniff", ""},
		{"a file of bytes", func(c *megactx.Ctx) error {
			c.Writer().Header().Set("Content-Type", "application/octet-stream")
			_, err := c.Writer().Write([]byte{1})
			return err
		}, "", "", ""},
	} {
		s := newStage()
		s.router.Get("/", x.handler)
		server := httptest.NewServer(s.router.Handler())
		for range 2 { // what is shared between answers is not changed by one
			answer, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			h := answer.Header
			if h.Get("Content-Security-Policy") != x.csp || h.Get("X-Content-Type-Options") != x.sniff || h.Get("Referrer-Policy") != x.referrer {
				t.Errorf("%s: the header is %v", x.name, h)
			}
			if strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/html") != (x.csp != "") {
				t.Errorf("%s: the type is %q", x.name, h.Get("Content-Type"))
			}
		}
		server.Close()
	}
}

func TestAStatusThatDoesNotExistIsAnError(t *testing.T) {
	for _, status := range []int{0, 99, 1000} {
		s := newStage()
		s.router.Get("/", func(c *megactx.Ctx) error { c.Writer().WriteHeader(status); return nil })
		if w := s.ask("GET", "/", ""); w.Code != http.StatusInternalServerError {
			t.Errorf("%d is answered with %d", status, w.Code)
		}
	}
}

func TestAWriteDeadlineEndsAWriteInProgress(t *testing.T) {
	s := newStage()
	failed := make(chan error, 1)
	s.router.Get("/", func(c *megactx.Ctx) error {
		control := http.NewResponseController(c.Writer())
		time.AfterFunc(50*time.Millisecond, func() { _ = control.SetWriteDeadline(time.Now()) })
		for {
			if _, err := c.Writer().Write(make([]byte, 1<<20)); err != nil {
				failed <- err
				return nil
			}
		}
	})
	_, conn := s.request(t) // and nobody reads the answer
	late := time.AfterFunc(20*time.Second, func() { _ = conn.Close() })
	defer late.Stop()
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the write ended with %v", err)
	}
}
