package stack_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/stack"
)

type store struct{ stock map[string]int }

func (s *store) take(id string) { s.stock[id]-- } // panics: there is no map

func (s *store) small(id string) int { return len(id) + len(s.stock) }

func (s *store) List(names []string) (all []string) {
	for _, name := range names { // too large to be inlined
		all = append(all, strings.ToUpper(name), strings.ToLower(name))
		all = append(all, strings.Fields(strings.Repeat(name, len(s.stock)))...)
	}
	return all
}

// recovered returns the stack of a panic of fn.
func recovered(fn func()) (text []byte) {
	defer func() {
		if recover() != nil {
			text = debug.Stack()
		}
	}()
	fn()
	return nil
}

func TestStackBeginsAtThePanic(t *testing.T) {
	frames := stack.Parse(recovered(func() { (&store{}).take("lamp") }))
	var own []stack.Frame
	for _, f := range frames {
		if f.Own {
			own = append(own, f)
		}
	}
	if len(own) < 3 || own[0].Func != "stack_test.(*store).take" || filepath.Base(own[0].File) != "stack_test.go" {
		t.Fatalf("got %+v", frames)
	}
	lines := stack.Source(own[0].File, own[0].Line)
	here := ""
	for _, line := range lines {
		if line.Here {
			here = line.Text
		}
	}
	if !strings.Contains(here, "panics: there is no map") {
		t.Errorf("got %+v", lines)
	}
}

func TestFramesOfGoAndMegaAreFolded(t *testing.T) {
	text := stack.Text(stack.Parse(recovered(func() {
		_ = json.Unmarshal([]byte(`"x"`), new(broken))
	})))
	lines := strings.Split(text, "\n")
	if !strings.HasPrefix(lines[0], "stack_test.(*broken).UnmarshalJSON  ") || !strings.HasPrefix(lines[1], "… ") || !strings.HasSuffix(lines[1], " frames of mega and Go") {
		t.Errorf("got\n%s", text)
	}
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "… ") {
		t.Errorf("the frames of package testing are not folded:\n%s", text)
	}
}

type broken struct{}

func (*broken) UnmarshalJSON([]byte) error { panic("no") }

func TestFramesBelongToTheProgramOrNot(t *testing.T) {
	const dump = `goroutine 7 [running]:
runtime/debug.Stack()
	/usr/lib/go/src/runtime/debug/stack.go:26 +0x5e
github.com/megaframework/mega/ctx.protect.func1()
	/src/mega/ctx/serve.go:198 +0x5e
panic({0x1?, 0x2?})
	/usr/lib/go/src/runtime/panic.go:792 +0x132
example.org/shop/store.Map[...].Get(...)
	/src/shop/store/map.go:12
main.(*Handlers).Buy(0xc000012345, 0x1)
	/src/shop/handlers.go:42 +0x1d
github.com/megaframework/mega/ctx.protect(0x1)
	/src/mega/ctx/serve.go:201 +0x5e
github.com/go-chi/chi/v5.(*Mux).ServeHTTP(0x1)
	/mod/chi/mux.go:90 +0x5e
created by main.start in goroutine 1
	/src/shop/main.go:9 +0x5e
`
	want := []stack.Frame{
		{"store.Map[...].Get", "/src/shop/store/map.go", 12, true},
		{"main.(*Handlers).Buy", "/src/shop/handlers.go", 42, true},
		{"ctx.protect", "/src/mega/ctx/serve.go", 201, false},
		{"v5.(*Mux).ServeHTTP", "/mod/chi/mux.go", 90, false},
		{"main.start", "/src/shop/main.go", 9, true},
	}
	got := stack.Parse([]byte(dump))
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
	const text = "store.Map[...].Get  /src/shop/store/map.go:12\nmain.(*Handlers).Buy  /src/shop/handlers.go:42\n… 2 frames of mega and Go\nmain.start  /src/shop/main.go:9"
	if got := stack.Text(got); got != text {
		t.Errorf("got\n%s", got)
	}
	if got := stack.Text(got[2:3]); got != "ctx.protect  /src/mega/ctx/serve.go:201" {
		t.Errorf("a stack without frames of the program is folded: %s", got)
	}
	if got := stack.Parse([]byte("no stack\n\tat all\n")); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestMethodValueIsFoundWhereItsMethodIs(t *testing.T) {
	s := &store{}
	for name, fn := range map[string]any{"stack_test.(*store).List": s.List, "stack_test.(*store).small": s.small, "stack_test.recovered": recovered} {
		f, ok := stack.Declared(fn)
		if !ok || f.Func != name || filepath.Base(f.File) != "stack_test.go" || !f.Own {
			t.Errorf("%s: got %+v, %v", name, f, ok)
		}
	}
}

func TestOnlyGoFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret.txt")
	if err := os.WriteFile(file, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{file, filepath.Join(dir, "none.go"), "stack.go", dir} {
		if lines := stack.Source(file, 1); lines != nil {
			t.Errorf("%s: got %+v", file, lines)
		}
	}
	if lines := stack.Excerpt("a\nb\n", 3); lines != nil {
		t.Errorf("got %+v", lines)
	}
	if lines := stack.Excerpt("\ta\n", 1); len(lines) != 1 || lines[0].Text != "    a" {
		t.Errorf("got %+v", lines)
	}
	if lines := stack.Excerpt("a\r\nb\n", 1); len(lines) != 2 || lines[0] != (stack.Line{Number: 1, Text: "a", Here: true}) {
		t.Errorf("got %+v", lines)
	}
}
