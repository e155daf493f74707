package locale_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/megaframework/mega/ctx/locale"
)

// files returns a file system of alternating names and contents.
func files(pairs ...string) fs.FS {
	all := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return all
}

func TestLaterCatalogsReplaceTexts(t *testing.T) {
	texts, err := locale.Parse([]string{"en"}, files("en.yaml", "a: one\nb: two"), files("en.yaml", "b: three"))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := texts.Text("en", "a", nil)
	b, _ := texts.Text("en", "b", nil)
	if a+b != "onethree" {
		t.Errorf("got %s and %s", a, b)
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
			"ko: a has no {z}, but has it in en", "ko: a has {y}, but not in en",
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
		{"no other", []string{"en.yaml", `a: {one: "x"}`}, []string{`en.yaml: a: it has no text "other"`}},
		{"a text with the name of a part", []string{"en.yaml", `a: {description: "x"}`}, []string{`en.yaml: a: it has no text "other"; a plural form and a description are parts of one text`}},
		{"a part beside texts", []string{"en.yaml", `a: {b: {one: "x", two: "y", name: "z"}}`, "ko.toml", "other = 'x'\na = 'y'"}, []string{
			"en.yaml: a.b.one: the name is reserved for a part of one text, and a.b.name is beside it; rename it", "a.b.two: ", "ko.toml: other: the name is reserved",
		}},
		{"a part without a text", []string{"en.yaml", "a: {one: x, other: }\nb: {description: , name: y}\nc: {two: }"}, []string{"a.other: it has no text", "b.description: it has no text", "c.two: it has no text"}},
		{"a section with the name of a part", []string{"en.yaml", `a: {description: {b: "x"}, name: "y"}`}, nil},
		{"two of a key", []string{"en.yaml", "a: x", "more.en.toml", `a = "y"`}, []string{"more.en.toml: a: it exists twice"}},
		{"a template of Go", []string{"en.yaml", `a: "{{.Name}}"`}, []string{"a placeholder here is {name}"}},
		{"two of a key in one file", []string{"en.json", "{\"a\": {\"b\": \"x\"},\n\"a\": {\"c\": \"y\", \"c\": \"z\"}}"}, []string{"en.json: line 2: a exists twice", "line 2: a.c exists twice"}},
		{"a document without content", []string{"en.yaml", "a: x\n---\n# end\n"}, nil},
		{"two documents", []string{"en.yaml", "a: x\n---\nb: y\n"}, []string{"en.yaml: line 2: the file has a second document"}},
		{"an open brace", []string{"en.yaml", `a: "x {name"`}, []string{`"{name" does not end`}},
		{"a closing brace", []string{"en.yaml", `a: "x } y"`}, []string{`a } without its {`}},
		{"an odd name", []string{"en.yaml", `a: "{na me}"`, "ko.yaml", `a: "{}"`}, []string{"{na me}: a placeholder", "{}: a placeholder"}},
		{"an odd particle", []string{"ko.yaml", `a: "{n|을}"`}, []string{`{n|을}: "을" is not a particle`}},
		{"a particle the wrong way round", []string{"ko.yaml", `a: "{n|를/을}"`}, []string{"is the wrong way round; write 을/를"}},
		{"another kind of file", []string{"en.yaml", "a: x", "README.md", "# x"}, []string{"README.md: a catalog is a file in yaml, toml or json"}},
		{"a file without a locale", []string{"messages.yaml", "a: x"}, []string{"messages.yaml: the name must end in the locale"}},
		{"broken yaml", []string{"en.yaml", "a: [", "ko.toml", "a = "}, []string{"en.yaml: ", "ko.toml: "}},
		{"a list", []string{"en.yaml", "a: {b: [x]}"}, []string{"en.yaml: a.b: it is a list, not a text"}},
		{"a number", []string{"en.yaml", "a: 5\nb: {other: true}\nc: 2026-11-26", "en.json", `{"d": {"e": 1.5}}`}, []string{
			`en.yaml: a: it is a number, not a text; write it in quotes`, `b.other: it is true, not a text; write it in quotes`,
			`c: it is a date, not a text; write it in quotes`, `en.json: d.e: it is a number, not a text`,
		}},
		{"a key that is no text", []string{"en.yaml", "a: {1: x}"}, []string{"expected key to be string but got 1"}},
		{"YAML 1.2", []string{"en.yaml", "%YAML 1.2\n---\na: x"}, []string{"remove the line %YAML"}},
		{"a line that does not parse", []string{"en.json", "{\n\"a\": \"b\",\n}", "ko.toml", "a = 'b'\nc = d\n", "de.json", "{"}, []string{
			"en.json: line 3: ", "ko.toml: line 2: ", "de.json: line 1: ",
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := locale.Check(files(x.files...))
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
		if _, err := locale.Parse(x.offered, files("en.yaml", "a: x", "ko.yaml", "a: x")); err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%v: got %v", x.offered, err)
		}
	}
	if l, err := locale.Parse(nil); err != nil || !slices.Equal(l.Names(), nil) {
		t.Errorf("nothing at all: %v, %v", l.Names(), err)
	}
}

func TestNoTextsAnswerWithTheKey(t *testing.T) {
	for name, none := range map[string]*locale.Texts{"nil": nil, "zero": {}} {
		if text, err := none.Text("en", "a.b", nil); text != "a.b" || err == nil {
			t.Errorf("%s: got %q, %v; want the key and an error", name, text, err)
		}
		if none.Match("en") != "" || none.Names() != nil {
			t.Errorf("%s: has the locales %v", name, none.Names())
		}
	}
}

func FuzzCatalogs(f *testing.F) {
	for _, text := range []string{`a: "{name|을/를}"`, `a: "\\{{x}"`, `a: "{|은/는}"`, `a: "{x}'을"`, `a: {one: x}`, `a: "}"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		texts, err := locale.Parse([]string{"ko"}, files("ko.yaml", text))
		if err != nil {
			return
		}
		if got, _ := texts.Text("ko", "a", []any{"name", "물"}); got == "" {
			t.Errorf("%q has no text", text)
		}
	})
}

func TestUnknownLanguagesOfAClientAreIgnored(t *testing.T) {
	texts, err := locale.Parse([]string{"en", "ko", "pt-BR"}, files("en.yaml", "a: x", "ko.yaml", "a: x", "pt-BR.yaml", "a: x"))
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]string{
		"zz, ko;q=0.9": "ko", "en;q=0.5, ko-KR, x1234567890": "ko", "C, ko;q=0.5": "ko", "ko;q=best, pt": "pt-BR", "*;q=0.1, zz, ko;q=0.5": "ko",
		"ko;q=0, zz": "en", "zz": "en", ",;=-": "en", "": "en", strings.Repeat("zz,", 1<<16) + "ko": "en",
	} {
		if got := texts.Match(header); got != want {
			t.Errorf("%.40q: got %s, want %s", header, got, want)
		}
	}
	// A header of 64 KiB has room for 20 000 languages, which would take 60 ms.
	if got := texts.Match(strings.Repeat("fr,", 100) + "ko"); got != "en" {
		t.Errorf("the language after the hundredth counts: %s", got)
	}
	if got := texts.Match("zz", "ko"); got != "ko" {
		t.Errorf("the second choice: got %s", got)
	}
}
