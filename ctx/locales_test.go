package megactx_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	megactx "github.com/megaframework/mega/ctx"
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
	locales, err := megactx.ParseLocales(offered, texts)
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
		if got := s.host.New(t.Context()).WithLocale(x.locale).T(x.key, x.kv...); got != x.want {
			t.Errorf("%s %s %v: got %s, want %s", x.locale, x.key, x.kv, got, x.want)
		}
	}
	if s.log.Len() != 0 {
		t.Errorf("the log has %s", s.log)
	}
}

func TestWhatIsMissingIsShownAndLoggedOnce(t *testing.T) {
	for _, x := range []struct {
		key  string
		kv   []any
		want string
		says string
	}{
		{"no.such", []any{"name", "x"}, "no.such", "there is no such key"},
		{"hello", nil, "Hello, {name}.", "no value for name"},
		{"hello", []any{"name"}, "Hello, {name}.", "the last name, name, has no value"},
		{"cart.items", nil, "{count} items", "which chooses the plural form"},
		{"cart.items", []any{"count", []int{1}}, "[1] items", "count is a []int, not a number"},
	} {
		s := speaking(t)
		c := s.host.New(t.Context())
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
	c := s.host.New(t.Context())
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

func TestAppsSayWhatTheySpeak(t *testing.T) {
	for want, offered := range map[string][]string{"en ko pl": nil, "pl ko": {"pl", "ko"}, "ko": {"ko", "ko"}} {
		s := speaking(t, offered...)
		if got := strings.Join(s.host.Locales.Names(), " "); got != want {
			t.Errorf("offered %v: got %s", offered, got)
		}
		if got := s.host.New(t.Context()).App.Locales; strings.Join(got, " ") != want {
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

func TestPagesSpeakTheLocaleOfTheirRequest(t *testing.T) {
	s := speaking(t)
	s.host.App.Prefix = "/shop"
	views, err := megactx.ParseViews(files(
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

func TestLaterCatalogsReplaceTexts(t *testing.T) {
	locales, err := megactx.ParseLocales([]string{"en"}, files("en.yaml", "a: one\nb: two"), files("en.yaml", "b: three"))
	if err != nil {
		t.Fatal(err)
	}
	c := (&megactx.Host{Locales: locales}).New(t.Context())
	if got := c.T("a") + c.T("b"); got != "onethree" {
		t.Errorf("got %s", got)
	}
}

func TestCatalogsHaveToAgree(t *testing.T) {
	for _, x := range []struct {
		name  string
		files []string
		says  []string // "" for nothing
	}{
		{"what is right", []string{"ko.yaml", `a: "{name|을/를} {count}개"`, "en.yaml", `a: "{count} {name}"`}, nil},
		{"a key that one lacks", []string{"ko.yaml", "a: x", "en.yaml", "a: x\nb: y\nc: {d: z}"}, []string{
			"ko: b is missing; en has it", "ko: c.d is missing; en has it",
		}},
		{"a placeholder that one lacks", []string{"ko.yaml", `a: "{x} {y}"`, "en.yaml", `a: "{x} {z}"`}, []string{
			"ko: a has no {z}; in en it has", "ko: a has {y}; in en it has not",
		}},
		{"a bare particle", []string{"ko.yaml", `a: "{name}을 담았습니다."`}, []string{"ko: a: {name}을 is right for some values only; write {name|을/를}"}},
		{"a bare particle behind a mark", []string{"ko.yaml", `a: "'{name}'로 갑니다"`}, []string{"ko: a: {name}'로 is right for some values only; write {name}'{|으로/로}"}},
		{"particles in a row", []string{"ko.yaml", `a: "{n}으로는"`}, []string{"{n}으로 is right for some"}},
		{"a bare particle in a plural form", []string{"ko.yaml", `a: {other: "{count}이 있음"}`}, []string{"{count}이 is right"}},
		{"a copula", []string{"ko.yaml", `a: "{n}이에요."`}, []string{"{n}이에요 is right for some values only; write {n|이에요/예요}"}},
		{"words that begin like a particle", []string{"ko.yaml", `a: "{n}이상 {n}가게 {n}과일 {n}로그인 {n}개를 {n} 은행 {n}아이 {n}은행이에요 {n|은/는}"`}, nil},
		{"a particle in English", []string{"en.yaml", `a: "{name|을/를}"`}, []string{"en: a: 을/를 is a Korean particle"}},
		{"forms that English lacks", []string{"en.yaml", `a: {one: "x", few: "y", other: "z"}`}, []string{`en: a: the form "few" is never used in this language`}},
		{"forms that Korean lacks", []string{"ko.yaml", `a: {one: "x", other: "z"}`}, []string{`ko: a: the form "one" is never used in this language`}},
		{"a form that Polish needs", []string{"pl.yaml", `a: {one: "x", other: "z"}`}, []string{`pl: a: the form "few" is missing`, `pl: a: the form "many" is missing`}},
		{"no text", []string{"en.yaml", `a: ""`}, []string{"en.yaml: a: it has no text"}},
		{"no other", []string{"en.yaml", `a: {one: "x"}`}, []string{"en.yaml: a: it has no text"}},
		{"two of a key", []string{"en.yaml", "a: x", "more.en.toml", `a = "y"`}, []string{"more.en.toml: a: there are two of it"}},
		{"a template of Go", []string{"en.yaml", `a: "{{.Name}}"`}, []string{"a placeholder here is {name}"}},
		{"an open brace", []string{"en.yaml", `a: "x {name"`}, []string{`"{name" does not end`}},
		{"a closing brace", []string{"en.yaml", `a: "x } y"`}, []string{`a } without its {`}},
		{"an odd name", []string{"en.yaml", `a: "{na me}"`, "ko.yaml", `a: "{}"`}, []string{"{na me}: a placeholder", "{}: a placeholder"}},
		{"an odd particle", []string{"ko.yaml", `a: "{n|을}"`}, []string{`{n|을}: "을" is not a particle`}},
		{"a particle the wrong way round", []string{"ko.yaml", `a: "{n|를/을}"`}, []string{"is the wrong way round; write 을/를"}},
		{"another kind of file", []string{"en.yaml", "a: x", "README.md", "# x"}, []string{"README.md: a catalog is a file in yaml, toml or json"}},
		{"a file without a locale", []string{"messages.yaml", "a: x"}, []string{"messages.yaml: the name does not say the locale"}},
		{"broken yaml", []string{"en.yaml", "a: [", "ko.toml", "a = "}, []string{"en.yaml: ", "ko.toml: "}},
		{"a list", []string{"en.yaml", "a: [1]"}, []string{"en.yaml: "}},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := megactx.CheckLocales(files(x.files...))
			if (err != nil) != (len(x.says) > 0) {
				t.Fatalf("got %v", err)
			}
			for _, want := range x.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not told:\n%v", want, err)
				}
			}
		})
	}
}

func TestLocalesOfferedNeedACatalog(t *testing.T) {
	for _, x := range []struct {
		offered []string
		says    string
	}{{[]string{"en", "ja"}, `the locale "ja" has no catalog`}, {[]string{"nonsense-x-"}, `the locale "nonsense-x-"`}} {
		if _, err := megactx.ParseLocales(x.offered, texts); err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%v: got %v", x.offered, err)
		}
	}
	if l, err := megactx.ParseLocales(nil); err != nil || !slices.Equal(l.Names(), nil) {
		t.Errorf("nothing at all: %v, %v", l.Names(), err)
	}
}

func FuzzCatalogs(f *testing.F) {
	for _, text := range []string{`a: "{name|을/를}"`, `a: "\\{{x}"`, `a: "{|은/는}"`, `a: "{x}'을"`, `a: {one: x}`, `a: "}"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		locales, err := megactx.ParseLocales([]string{"ko"}, files("ko.yaml", text))
		if err != nil {
			return
		}
		c := (&megactx.Host{Locales: locales}).New(t.Context())
		if c.T("a", "name", "물") == "" {
			t.Errorf("%q has no text", text)
		}
	})
}
