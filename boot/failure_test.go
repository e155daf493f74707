package boot_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
)

func TestConstructorsThatNeedEachOtherAreNamed(t *testing.T) {
	type a struct{}
	type b struct{}
	type c struct{}
	p, _ := process()
	f := fail(t, p, mega.Provide(func(*b) *a { return nil }), mega.App("main",
		mega.Provide(func(*a) *int { return nil }, func(*c) *string { return nil }),
	), mega.Provide(func(*c) *b { return nil }, func(*a) *c { return nil }))
	if f.Code != "boot.circle" || f.Exit != failure.ExitInternal || len(f.Facts) != 3 {
		t.Fatalf("got %+v, want the three that need each other", f)
	}
	for _, fact := range f.Facts {
		if !strings.Contains(fact.Value, "failure_test.go:") {
			t.Errorf("%v does not say where it is", fact)
		}
	}
}

func TestPanicSaysWhereItBegan(t *testing.T) {
	var zero map[string]int
	p, _ := process()
	f := fail(t, p, constructed(func() (*int, error) { zero["x"]++; return nil, nil }))
	if f.Code != "boot.constructor_panicked" || !strings.Contains(f.Error(), "nil map (") || !strings.Contains(f.Error(), "failure_test.go:") || f.Trace != "" {
		t.Errorf("got %v", f)
	}
	p.Trace = []string{"fx"}
	if f := fail(t, p, constructed(func() (*int, error) { panic(errors.New("no idea")) })); !strings.Contains(f.Trace, "goroutine ") {
		t.Errorf("the stack is not traced: %q", f.Trace)
	}
}

func TestWayThroughTheInjectorIsToldOnlyIfTraced(t *testing.T) {
	for _, topics := range [][]string{nil, {"fx"}} {
		p, _ := process()
		p.Trace = topics
		f := fail(t, p, mega.App("main", mega.Provide(func() (*int, error) { return nil, errors.New("no disk") }),
			mega.Routes(func(megactx.Router, *int) {})))
		var panel strings.Builder
		f.Print(&panel, "shop")
		if told := strings.Contains(panel.String(), "could not build arguments"); told != (topics != nil) {
			t.Errorf("traced %q: told is %v:\n%s", topics, told, &panel)
		}
		if !strings.Contains(panel.String(), "cause        no disk\n") {
			t.Errorf("the cause is not told in its own words:\n%s", &panel)
		}
	}
}

func TestFailureIsTheSameAsJSON(t *testing.T) {
	p, _ := process("MEGA_LOCK_TTL=5", "MEGA_LOK_WAIT=1s")
	wrong := fail(t, p, mega.App("main", mega.Routes(hello)))
	p, _ = process("MEGA_LOCK_REQUIRE=fleet")
	small := fail(t, p, mega.App("main", mega.Routes(hello)))
	p.Environ, p.Trace = nil, []string{"fx"}
	failed := fail(t, p, constructed(func() (*int, error) { return nil, errors.New("no disk") }))
	for _, f := range []*boot.Failure{wrong, small, failed} {
		record, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var panel strings.Builder
		f.Print(&panel, "shop")
		said := texts(t, record)
		for word := range strings.FieldsSeq(panel.String()) {
			word = strings.Trim(word, `().:?"`)
			if !strings.Contains(said, word) && !strings.Contains("shop could not start (more: explain exit status Do one of • cause trace ("+f.Code+")", word) {
				t.Errorf("%q is in the panel and not in the record:\n%s\n%s", word, &panel, record)
			}
		}
	}
}

// texts are all strings and numbers of a JSON document, with spaces between.
func texts(t *testing.T, document []byte) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(document)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case string:
			b.WriteString(v + " ")
		case json.Number:
			b.WriteString(v.String() + " ")
		case bool:
			if v {
				b.WriteString("true ")
			}
		}
	}
	walk(v)
	return b.String()
}

func TestFailureOfAConfigurationNamesItsProblemsAsAnError(t *testing.T) {
	p, _ := process("MEGA_LOCK_TTL=5", "MEGA_LOK_WAIT=1s")
	f := fail(t, p, mega.App("main"))
	var problems settings.Problems
	if !errors.As(f, &problems) || len(problems) != 2 || !strings.Contains(f.Error(), "MEGA_LOK_WAIT") {
		t.Errorf("got %v", f)
	}
}
