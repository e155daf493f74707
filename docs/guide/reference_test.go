package guide_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/megaframework/mega/config"
	configuration "github.com/megaframework/mega/internal/settings"
)

func TestReferenceIsCurrent(t *testing.T) {
	const mark = "<!-- reference -->\n"
	page := read(t, configurationPage)
	before, _, ok := strings.Cut(page, mark)
	if !ok {
		t.Fatalf("the page has no %s", mark)
	}
	current := before + mark + reference(t)
	if *update {
		if err := os.WriteFile(configurationPage, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if page != current {
		t.Error("the reference is not that of the keys: go test ./docs/guide -run Reference -update")
	}
}

// reference returns the keys as Markdown: a table for each section, in the order of
// their declaration.
func reference(t *testing.T) string {
	t.Helper()
	c, err := configuration.Load(configuration.Source{Apps: []string{"main"}, Environ: []string{"MEGA_CACHE_MAIN_URL=redis://h"}})
	if err != nil {
		t.Fatal(err)
	}
	const head = "| key | takes | default | |\n|---|---|---|---|\n"
	var b strings.Builder
	b.WriteString("\n" + head)
	last, listed := "", 0
	eachKey(reflect.TypeFor[config.Config](), "", func(key string, f reflect.StructField) {
		section, _, nested := strings.Cut(key, ".")
		if nested && section != last {
			last = section
			b.WriteString("\n### " + section + "\n\n" + head)
		}
		e, err := c.Explain(strings.NewReplacer("<name>", "main", "<alias>", "main").Replace(key))
		if err != nil {
			t.Fatal(err)
		}
		listed++
		b.WriteString("| `" + key + "` ")
		for _, text := range []string{legal(e), preset(f.Tag), remarks(e)} {
			b.WriteString("| " + strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) + " ")
		}
		b.WriteString("|\n")
	})
	if all := len(c.Keys()); listed != all {
		t.Errorf("the reference has %d of %d keys", listed, all)
	}
	return b.String()
}

// eachKey calls do for each key below path, with a placeholder for the name of an app and
// the alias of a cache.
func eachKey(section reflect.Type, path string, do func(key string, f reflect.StructField)) {
	for f := range section.Fields() {
		key := strings.TrimPrefix(path+"."+f.Tag.Get("key"), ".")
		switch {
		case f.Type == reflect.TypeFor[map[string]config.App]():
			eachKey(f.Type.Elem(), key+".<name>", do)
		case f.Type.Kind() == reflect.Map:
			eachKey(f.Type.Elem(), key+".<alias>", do)
		case f.Type.Kind() == reflect.Struct && f.Tag.Get("doc") == "":
			eachKey(f.Type, key, do)
		default:
			do(key, f)
		}
	}
}

// legal returns the legal values of a key.
func legal(e configuration.Explanation) string {
	text := e.Takes
	switch {
	case e.Takes == "a URL":
		text += ": " + strings.Join(e.Legal, "://, ") + "://"
	case e.Legal != nil:
		text = strings.Join(e.Legal, ", ")
	case e.Like != "":
		text += ", like " + e.Like
	}
	switch {
	case e.Min != "" && e.Max != "":
		text += fmt.Sprintf(", %s to %s", e.Min, e.Max)
	case e.Min != "":
		text += ", at least " + e.Min
	}
	return text
}

// preset returns the default of a key that is the same in all programs.
func preset(tag reflect.StructTag) string {
	switch {
	case tag.Get("default") != "":
		return "`" + tag.Get("default") + "`"
	case tag.Get("inherits") != "":
		return "the value of `" + tag.Get("inherits") + "`"
	}
	return ""
}

func remarks(e configuration.Explanation) string {
	text := e.Doc
	if e.Secret {
		text += "; **secret**"
	}
	if e.Live {
		text += "; **live**"
	}
	return text
}
