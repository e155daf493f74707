package megactx_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
)

// files makes a file system of names and contents by turns.
func files(pairs ...string) fs.FS {
	all := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return all
}

var texts = files(
	"locales/ko.yaml", `
hello: "{name}님, 안녕하세요."
cart:
  added: "{name|을/를} 담았습니다."
  quoted: "‘{name}’{|을/를} 담았습니다. \\{\\}"
  items: "{count}개"
`,
	"locales/en.toml", `
hello = "Hello, {name}."
[cart]
added = "Added {name}."
quoted = "Added '{name}'. \\{\\}"
[cart.items]
one = "{count} item"
other = "{count} items"
`,
	"locales/active.pl.json", `{
"hello": "Cześć, {name}.", "cart": {"added": "Dodano {name}.", "quoted": "Dodano „{name}”. \\{\\}",
"items": {"one": "{count} rzecz", "few": "{count} rzeczy", "many": "{count} rzeczy", "other": "{count} rzeczy"}}}`,
)

// speaking is a stage that answers /?key= with a text.
func speaking(t *testing.T, offered ...string) *stage {
	t.Helper()
	locales, err := locale.Parse(offered, texts)
	if err != nil {
		t.Fatal(err)
	}
	s := newStage()
	s.host.Locales = locales
	s.router.Get("/", func(c *megactx.Ctx) error { return c.Text(200, c.Locale()) })
	return s
}

func TestTextsAreFilledIn(t *testing.T) {
	s := speaking(t)
	for _, x := range []struct {
		locale, want string
		key          string
		kv           []any
	}{
		{"ko", "지수님, 안녕하세요.", "hello", []any{"name", "지수"}},
		{"ko", "사과를 담았습니다.", "cart.added", []any{"name", "사과"}},
		{"ko", "연필을 담았습니다.", "cart.added", []any{"name", "연필"}},
		{"ko", "‘사과’를 담았습니다. {}", "cart.quoted", []any{"name", "사과"}},
		{"ko", "1개", "cart.items", []any{"count", 1}},
		{"en", "1 item", "cart.items", []any{"count", 1}},
		{"en", "0 items", "cart.items", []any{"count", uint8(0)}},
		{"en", "1.5 items", "cart.items", []any{"count", 1.5}},
		{"en", "1.0 items", "cart.items", []any{"count", "1.0"}},
		{"pl", "3 rzeczy", "cart.items", []any{"count", int64(3)}},
		{"pl", "1 rzecz", "cart.items", []any{"count", 1}},
		{"en", "Hello, <b>.", "hello", []any{"name", "<b>"}},
		{"en", "Hello, .", "hello", []any{"name", nil}},
		{"en", "Hello, 7.", "hello", []any{"other", "x", "name", 7}},
	} {
		if got := outside(t.Context(), s.host).WithLocale(x.locale).T(x.key, x.kv...); got != x.want {
			t.Errorf("%s %s %v: got %s, want %s", x.locale, x.key, x.kv, got, x.want)
		}
	}
	if s.log.Len() != 0 {
		t.Errorf("the log has %s", s.log)
	}
}

func TestMissingTextIsShownAndLoggedOnce(t *testing.T) {
	for _, x := range []struct {
		key  string
		kv   []any
		want string
		says string
	}{
		{"no.such", []any{"name", "x"}, "no.such", "unknown key"},
		{"hello", nil, "Hello, {name}.", "no value for name"},
		{"hello", []any{"name"}, "Hello, {name}.", "the name name has no value"},
		{"cart.items", nil, "{count} items", "which chooses the plural form"},
		{"cart.items", []any{"count", []int{1}}, "[1] items", "count is a []int, not a number"},
	} {
		s := speaking(t)
		c := outside(t.Context(), s.host)
		for range 3 {
			if got := c.T(x.key, x.kv...); got != x.want {
				t.Errorf("%s: got %s, want %s", x.key, got, x.want)
			}
		}
		if text := s.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, x.says) || !strings.Contains(text, `"locale":"en"`) {
			t.Errorf("%s %v: the log has %s", x.key, x.kv, text)
		}
	}
}

func TestKeysFromClientsDoNotFillTheMemory(t *testing.T) {
	s := speaking(t)
	c := outside(t.Context(), s.host)
	for i := range 2000 {
		c.T("no." + str(i))
	}
	if n := strings.Count(s.log.String(), "\n"); n != 1000 {
		t.Errorf("%d complaints were logged", n)
	}
}

func TestTheLocaleIsTheOneAskedFor(t *testing.T) {
	for _, x := range []struct{ query, cookie, accept, want string }{
		{"", "", "", "ko"}, // the first offered
		{"", "", "en", "en"},
		{"", "", "en-GB, ko;q=0.5", "en"},
		{"", "", "fr, en;q=0.1", "en"},
		{"", "", "fr", "ko"},
		{"", "", "ko-KR,ko;q=0.9,en-US;q=0.8", "ko"},
		{"", "en", "ko", "en"},
		{"ko", "en", "en", "ko"},
		{"xx-nonsense-", "en", "", "en"},
		{"fr", "", "en", "en"},
		{"pl", "", "", "ko"}, // has a catalog, and is not offered
	} {
		s := speaking(t, "ko", "en")
		r := httptest.NewRequest("GET", "/?lang="+x.query, nil)
		r.Header.Set("Accept-Language", x.accept)
		if x.cookie != "" {
			r.AddCookie(&http.Cookie{Name: "lang", Value: x.cookie})
		}
		w := httptest.NewRecorder()
		s.router.Handler().ServeHTTP(w, r)
		if w.Body.String() != x.want {
			t.Errorf("%+v: got %s", x, w.Body)
		}
	}
}

func TestAppsListTheirLocales(t *testing.T) {
	for want, offered := range map[string][]string{"en ko pl": nil, "pl ko": {"pl", "ko"}, "ko": {"ko", "ko"}} {
		s := speaking(t, offered...)
		if got := strings.Join(s.host.Locales.Names(), " "); got != want {
			t.Errorf("offered %v: got %s", offered, got)
		}
		if got := outside(t.Context(), s.host).App.Locales; strings.Join(got, " ") != want {
			t.Errorf("the Ctx says %v", got)
		}
	}
	c := newCtx(t)
	if c.Locale() != "" || c.T("a.b") != "a.b" || c.WithLocale("ko").Locale() != "" {
		t.Error("an app without texts speaks")
	}
}

func TestALocaleOutlivesItsRequest(t *testing.T) {
	s := speaking(t)
	s.router.Get("/task", func(c *megactx.Ctx) error {
		c.Go("mail", func(c *megactx.Ctx) error {
			if got := c.T("cart.items", "count", 2); got != "2개" {
				t.Errorf("the task says %s", got)
			}
			return nil
		})
		return nil
	})
	s.ask("GET", "/task", "", "Accept-Language: ko")
	if err := s.host.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// A middleware chooses the locale, as of a user who has signed in. An answer has one
// language.
func TestALocaleOfAMiddlewareIsTheHandlers(t *testing.T) {
	for name, use := range map[string]func(megactx.Router){
		"of net/http": func(r megactx.Router) {
			r.UseStd(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					c, _ := megactx.From(r.Context())
					next.ServeHTTP(w, r.WithContext(c.WithLocale("ko")))
				})
			})
		},
		"of handlers": func(r megactx.Router) {
			r.Use(func(next megactx.Handler) megactx.Handler {
				return func(c *megactx.Ctx) error { return next(c.WithLocale("ko")) }
			})
		},
		"before another middleware": func(r megactx.Router) {
			r.Use(func(next megactx.Handler) megactx.Handler {
				return func(c *megactx.Ctx) error { return next(c.WithLocale("ko")) }
			})
			r.Use(func(next megactx.Handler) megactx.Handler {
				return func(c *megactx.Ctx) error {
					if c.Request().URL.Path == "/error" {
						return megactx.Error(http.StatusConflict, "cart.full", "no room")
					}
					return next(c)
				}
			})
		},
	} {
		s := speaking(t)
		s.router = router.New(s.host)
		use(s.router)
		s.router.Get("/", func(c *megactx.Ctx) error { return c.Text(200, c.Locale()+" "+c.Detach().Locale()) })
		s.router.Get("/error", func(*megactx.Ctx) error { return megactx.Error(http.StatusConflict, "cart.full", "no room") })
		s.router.Get("/panic", func(*megactx.Ctx) error { panic("no") })
		s.router.Post("/bind", func(c *megactx.Ctx) error { return c.Bind(&struct{ N int }{}) })
		if w := s.ask("GET", "/", "", "Accept-Language: en"); w.Body.String() != "ko ko" {
			t.Errorf("%s: the locale is %s", name, w.Body)
		}
		for _, x := range []struct{ method, target, body, title string }{
			{"GET", "/error", "", "충돌"},
			{"GET", "/panic", "", "서버 오류"},
			{"POST", "/bind", `{"N":"x"}`, "입력 오류"},
		} {
			w := s.ask(x.method, x.target, x.body, "Accept-Language: en", "Content-Type: application/json", wantJSON)
			if lang := w.Header().Get("Content-Language"); lang != "ko" || !strings.Contains(w.Body.String(), x.title) {
				t.Errorf("%s: the answer to %s is in %s: %s", name, x.target, lang, w.Body)
			}
		}
	}
}

func TestPagesSpeakTheLocaleOfTheirRequest(t *testing.T) {
	s := speaking(t)
	s.host.App.Prefix = "/shop"
	views, err := request.ParseViews(files(
		"shared/layout.html", `{{define "layout"}}<html lang="{{locale}}">{{template "content" .}}</html>{{end}}`,
		"cart.html", `{{define "content"}}<a href="{{url "/cart"}}" title="{{t "hello" "name" .}}">{{t "hello" "name" .}}</a>{{end}}`,
		"error.html", `{{define "content"}}{{t .Code}} {{t "cart.items" "count" .Status}}{{end}}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	s.host.Views = views
	s.router.Get("/cart", func(c *megactx.Ctx) error { return c.HTML(200, "cart", `<i>"`) })
	var all sync.WaitGroup
	for _, x := range []struct{ target, accept, want string }{
		{"/cart", "ko", `<html lang="ko"><a href="/shop/cart" title="&lt;i&gt;&#34;님, 안녕하세요.">&lt;i&gt;&#34;님, 안녕하세요.</a></html>`},
		{"/cart", "en", `<html lang="en"><a href="/shop/cart" title="Hello, &lt;i&gt;&#34;.">Hello, &lt;i&gt;&#34;.</a></html>`},
		{"/none", "ko", `<html lang="ko">request.not_found 404개</html>`},
		{"/none", "en", `<html lang="en">request.not_found 404 items</html>`},
	} {
		all.Go(func() {
			for range 20 {
				w := s.ask("GET", x.target, "", "Accept-Language: "+x.accept)
				if w.Body.String() != x.want {
					t.Errorf("%s in %s: got %s, want %s", x.target, x.accept, w.Body, x.want)
				}
				if x.target == "/cart" && (w.Header().Get("Content-Language") != x.accept || w.Header().Get("Vary") != "Accept, Accept-Language, Cookie") {
					t.Errorf("caches are told %v", w.Header())
				}
			}
		})
	}
	all.Wait()
}
