package megactx_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/lock"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// password is not in the source code as it is in the request.
const password = "hunter" + "2"

// developing returns an app in env dev, with locks in memory.
func developing(t *testing.T) *stage {
	t.Helper()
	s := newStage()
	s.host.App.Env = "dev"
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	s.host.Locker = l
	return s
}

// visit sends the request of a browser on this machine, changed by change.
func (s *stage) visit(target string, change func(r *requested)) *httptest.ResponseRecorder {
	r := &requested{httptest.NewRequest("GET", target, nil), httptest.NewRecorder()}
	r.Host, r.RemoteAddr = "localhost:8080", "127.0.0.1:5000"
	r.Header.Set("Accept", browser)
	if change != nil {
		change(r)
	}
	s.router.Handler().ServeHTTP(r.answer, r.Request)
	return r.answer
}

type requested struct {
	*http.Request
	answer *httptest.ResponseRecorder
}

type shelf struct{ stock map[string]int }

func (s *shelf) take(id string) { s.stock[id]-- } // the line of the panic

type counter struct{ shelf shelf }

func (c *counter) Buy(ctx *megactx.Ctx) error {
	return ctx.Lock.With("product:"+ctx.Param("id"), func(ctx *megactx.Ctx) error {
		c.shelf.take(ctx.Param("id"))
		return nil
	})
}

func (c *counter) Fail(ctx *megactx.Ctx) error {
	for range 3 { // too large to be inlined
		if err := ctx.Lock.With("first", func(*megactx.Ctx) error { return nil }); err != nil {
			return err
		}
	}
	return fmt.Errorf("read the stock: %w", errors.Join(errors.New("redis://ann:"+password+"@db"), errors.New("<b>disk</b>")))
}

func shows(t *testing.T, page string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestPageOfAPanicShowsItsPlaceItsLocksAndTheRequest(t *testing.T) {
	s := developing(t)
	s.router.Post("/products/{id}/buy", func(*megactx.Ctx) error { return nil })
	s.router.Get("/products/{id}/buy", (&counter{}).Buy)
	w := s.visit("/products/lamp/buy?page=2&token="+password, func(r *requested) {
		r.Header.Set("Authorization", "Bearer "+password)
		r.Header.Set("Cookie", "session="+password)
		r.Header.Set("X-Company-Key", password)
		r.Header.Set("Accept-Language", "ko")
	})
	page := w.Body.String()
	if w.Code != 500 || strings.Contains(page, password) {
		t.Fatalf("status %d, or a secret:\n%s", w.Code, page)
	}
	shows(t, page, "assignment to entry in nil map", "ctx_test.(*shelf).take", "devpage_test.go:",
		"// the line of the panic</span>", `class="here"`, "frames of mega and Go</summary>",
		"<dd>product:lamp</dd>", "<dd>held</dd>", "<dt>{id}</dt><dd>lamp</dd>", "<dt>?page</dt><dd>2</dd>", "<dt>?token</dt><dd>***</dd>",
		"<dt>Authorization</dt><dd>***</dd>", "<dt>Cookie</dt><dd>***</dd>", "<dt>X-Company-Key</dt><dd>***</dd>", "<dt>Accept-Language</dt><dd>ko</dd>",
		"/products/{id}/buy", "<code>internal</code>", `name="viewport"`)
	if n := len(regexp.MustCompile(`class="here">\s+\d+  func \(s \*shelf\) take`).FindAllString(page, -1)); n != 1 {
		t.Errorf("the place of the panic is shown %d times", n)
	}
	if at, _ := s.last(t)["at"].(string); !strings.Contains(at, "devpage_test.go:") {
		t.Errorf("the log does not have the place: %v", s.last(t))
	}
}

func TestPageOfAnErrorShowsItsCausesAndTheHandler(t *testing.T) {
	s := developing(t)
	s.router.Use(func(next megactx.Handler) megactx.Handler {
		return func(ctx *megactx.Ctx) error { return next(ctx) }
	})
	s.router.Get("/", (&counter{}).Fail)
	page := s.visit("/", nil).Body.String()
	shows(t, page, "read the stock: ", "*fmt.wrapError", "*errors.joinError", "redis://***@db", "&lt;b&gt;disk&lt;/b&gt;",
		"the handler that returned the error", "ctx_test.(*counter).Fail", "<dd>released</dd>", "func (c *counter) Fail(ctx *megactx.Ctx) error {")
	if handler, _ := s.last(t)["handler"].(string); !strings.HasPrefix(handler, "ctx_test.(*counter).Fail  ") || !strings.Contains(handler, "devpage_test.go:") {
		t.Errorf("the log does not have the handler: %v", s.last(t))
	}
	if strings.Contains(page, password) || strings.Contains(page, "<b>") {
		t.Errorf("a secret, or markup of an error:\n%s", page)
	}
}

func TestPageOfARefusedLockShowsTheCall(t *testing.T) {
	s := developing(t)
	lease, err := s.host.Locker.Acquire(t.Context(), "product:lamp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release() }()
	s.router.Get("/", func(ctx *megactx.Ctx) error {
		_, err := ctx.Lock.TryAcquire("product:lamp") // the call
		return err
	})
	w := s.visit("/", nil)
	if w.Code != 409 {
		t.Errorf("status %d", w.Code)
	}
	shows(t, w.Body.String(), "lock.not_acquired", "<dd>not acquired</dd>", "// the call</span>")
}

func TestPageOfTheAppsOwnErrorShowsWhereItWasMade(t *testing.T) {
	s := developing(t)
	s.router.Get("/", func(*megactx.Ctx) error {
		return megactx.Error(418, "tea.pot", "It is a teapot.") // made here
	})
	shows(t, s.visit("/", nil).Body.String(), "tea.pot", "It is a teapot.", "// made here</span>")
}

func TestPageOfABrokenViewShowsItsLine(t *testing.T) {
	s := developing(t)
	views, err := request.ParseViews(fstest.MapFS{"home.html": {Data: []byte("<p>\n{{.Missing.Name}}\n</p>")}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Views = views
	s.router.Get("/", func(ctx *megactx.Ctx) error { return ctx.HTML(200, "home", struct{}{}) })
	s.router.Get("/typo", func(ctx *megactx.Ctx) error { return ctx.HTML(200, "hmoe", nil) })
	shows(t, s.visit("/", nil).Body.String(), "home.html:2", `class="here">    2  {{.Missing.Name}}`)
	shows(t, s.visit("/typo", nil).Body.String(), "did you mean &#34;home&#34;?")
}

// The page shows source code.
func TestPageForDevelopersIsForTheirBrowserAlone(t *testing.T) {
	for name, change := range map[string]func(*stage, *requested){
		"env production":        func(s *stage, _ *requested) { s.host.App.Env = "production" },
		"env test":              func(s *stage, _ *requested) { s.host.App.Env = "test" },
		"another machine":       func(_ *stage, r *requested) { r.RemoteAddr = "192.0.2.7:5000" },
		"the name of a site":    func(_ *stage, r *requested) { r.Host = "evil.example.org" },
		"an address of the net": func(_ *stage, r *requested) { r.Host = "192.0.2.7:8080" },
		"a program":             func(_ *stage, r *requested) { r.Header.Set("Accept", "*/*") },
		"a program for JSON":    func(_ *stage, r *requested) { r.Header.Set("Accept", "application/json") },
	} {
		s := developing(t)
		s.router.Get("/", (&counter{}).Fail)
		w := s.visit("/", func(r *requested) { change(s, r) })
		if page := w.Body.String(); w.Code != 500 || strings.Contains(page, "disk") || strings.Contains(page, "counter") {
			t.Errorf("%s: status %d: %s", name, w.Code, page)
		}
	}
	for _, host := range []string{"localhost", "127.0.0.1:8080", "[::1]:8080", "shop.localhost:8080", "LOCALHOST.:8080"} {
		s := developing(t)
		s.router.Get("/", (&counter{}).Fail)
		shows(t, s.visit("/", func(r *requested) { r.Host, r.RemoteAddr = host, "[::1]:5000" }).Body.String(), "disk")
	}
}

func TestErrorsOfClientsHaveTheAppsOwnPage(t *testing.T) {
	s := developing(t)
	views, err := request.ParseViews(fstest.MapFS{"error.html": {Data: []byte("ours: {{.Code}}")}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Views = views
	s.router.Get("/", (&counter{}).Fail)
	if got := s.visit("/none", nil).Body.String(); got != "ours: request.not_found" {
		t.Errorf("got %s", got)
	}
	shows(t, s.visit("/", nil).Body.String(), "disk")
}

func TestPolicyOfThePageAllowsItsStyleAlone(t *testing.T) {
	s := developing(t)
	s.router.Get("/", (&counter{}).Fail)
	w := s.visit("/", nil)
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(w.Body.String())
	sum := sha256.Sum256([]byte(style[1]))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if got := w.Header().Get("Content-Security-Policy"); got != want || strings.Contains(w.Body.String(), "<script") || strings.Contains(w.Body.String(), " style=") {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestUnknownTemplateOfAViewIsFoundWhenItIsParsed(t *testing.T) {
	for name, x := range map[string]struct {
		files map[string]string
		want  string
	}{
		"called by a page":         {map[string]string{"home.html": "a\n{{if .X}}{{template \"rwo\" .}}{{end}}", "shared/x.html": `{{define "row"}}r{{end}}`}, `home.html:2: there is no template "rwo"; did you mean "row"?`},
		"an action without an end": {map[string]string{"pages/home.html": "a\n{{.X", "shared/x.html": ""}, "pages/home.html:2: unclosed action"},
		"an unknown function":      {map[string]string{"home.html": "{{x}}", "shared/a.html": "\n{{now}}"}, `shared/a.html:2: function "now" not defined`},
		"called by another":        {map[string]string{"home.html": `{{template "row"}}`, "shared/x.html": "{{define \"row\"}}{{range .}}\n{{else}}{{template \"cell\"}}{{end}}{{end}}"}, `shared/x.html:2: there is no template "cell"`},
		"not defined by the page":  {map[string]string{"home.html": `{{define "contents"}}{{end}}`, "shared/l.html": `{{define "layout"}}{{with .}}{{template "content"}}{{end}}{{end}}`}, `shared/l.html:1: there is no template "content"; did you mean "contents"?`},
	} {
		files := fstest.MapFS{}
		for file, text := range x.files {
			files[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if _, err := request.ParseViews(files); err == nil || err.Error() != "parse views: "+x.want {
			t.Errorf("%s: got %v, want %s", name, err, x.want)
		}
	}
	unused := fstest.MapFS{
		"home.html":     {Data: []byte(`{{block "own" .}}{{end}}{{template "used"}}`)},
		"shared/x.html": {Data: []byte(`{{define "used"}}{{range .}}{{template "used" .}}{{end}}{{end}}{{define "unused"}}{{template "of another page"}}{{end}}`)},
	}
	if _, err := request.ParseViews(unused); err != nil {
		t.Errorf("a template that calls itself, or one that no page calls, is refused: %v", err)
	}
}

// The name that a handler gives is known at its call alone.
func TestUnknownViewOfAHandlerNamesTheViews(t *testing.T) {
	s := developing(t)
	views, err := request.ParseViews(fstest.MapFS{"home.html": {}, "products.html": {}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Views = views
	s.router.Get("/", func(c *megactx.Ctx) error { return c.HTML(http.StatusOK, "prodcts", nil) })
	w := s.visit("/", nil)
	shows(t, html.UnescapeString(w.Body.String()), "mega.unknown_view", `there is no such view; did you mean "products"? The views: home, products`)
	if w.Code != http.StatusInternalServerError {
		t.Errorf("got the status %d", w.Code)
	}
}
