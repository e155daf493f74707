package settings_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/settings"
)

// noted adds its text as a line to the file that the text begins with.
type noted string

func (n *noted) UnmarshalText(text []byte) error {
	*n = noted(text)
	path, _, _ := strings.Cut(string(text), "#")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, string(text))
	return errors.Join(err, f.Close())
}

// ledger returns a section with a key that has this default.
func ledger(preset string) reflect.Type {
	return reflect.StructOf([]reflect.StructField{
		{Name: "Preset", Type: reflect.TypeFor[noted](), Tag: reflect.StructTag(fmt.Sprintf(`key:"preset" default:%q`, preset))},
		{Name: "Filed", Type: reflect.TypeFor[noted](), Tag: `key:"filed"`},
		{Name: "Variable", Type: reflect.TypeFor[noted](), Tag: `key:"variable"`},
		{Name: "Argument", Type: reflect.TypeFor[noted](), Tag: `key:"argument"`},
		{Name: "Hidden", Type: reflect.TypeFor[noted](), Tag: `key:"hidden"`},
	})
}

// One section that two apps share has values from every kind of layer.
func TestEachValueIsParsedOnce(t *testing.T) {
	dir := t.TempDir()
	book := filepath.Join(dir, "book")
	text := fmt.Sprintf("ledger:\n  filed: %s#filed\n  hidden: %[1]s#weak\n", book)
	if err := os.WriteFile(filepath.Join(dir, "mega.config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	section := ledger(book + "#preset")
	s := settings.Source{
		Env: "production", Dir: dir, Apps: []string{"web", "admin"},
		Environ:  []string{"MEGA_LEDGER_VARIABLE=" + book + "#variable", "MEGA_LEDGER_HIDDEN=" + book + "#strong"},
		Set:      []string{"ledger.argument=" + book + "#argument"},
		Sections: []settings.Section{{App: "web", Name: "ledger", Type: section}, {App: "admin", Name: "ledger", Type: section}},
	}
	expect := func(what string) {
		t.Helper()
		parsed, err := os.ReadFile(book)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"preset", "filed", "variable", "argument", "weak", "strong"} {
			if n := strings.Count(string(parsed), "#"+value+"\n"); n != 1 {
				t.Errorf("%s: the value %s was parsed %d times", what, value, n)
			}
		}
		if err := os.Remove(book); err != nil {
			t.Fatal(err)
		}
	}
	c, err := settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	expect("load")
	for _, app := range s.Apps {
		v, _ := c.Section(app, "ledger")
		if got := reflect.ValueOf(v).FieldByName("Hidden").String(); got != book+"#strong" {
			t.Errorf("%s has %q", app, got)
		}
	}
	if _, _, err := settings.Reload(c, s); err != nil {
		t.Fatal(err)
	}
	expect("reload")
}
