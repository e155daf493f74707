package plan

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/failure"
)

// sources writes files to a new folder, and returns the app that has it as the
// folder of its option Views.
func sources(t *testing.T, name string, files map[string]string) *Part {
	t.Helper()
	dir := t.TempDir()
	for file, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Part{Name: name, Views: []Files{{FS: disk{FS: os.DirFS(dir), dir: dir, names: []string{"views"}}}}}
}

// handler is a Go file whose handler renders a view after some declarations.
func handler(view, declarations string) string {
	return "package app\n" + declarations + "\nfunc (h *Handlers) Show(c *mega.Ctx) error {\n\treturn c.HTML(status(1, 2), " + view + ", page{a, b})\n}\n"
}

func TestUnknownViewOfAHandlerIsFoundInTheSourceCode(t *testing.T) {
	const found, missing = "views/products.html", `view "prodcts": there is no such view; did you mean "products"? The views: products`
	for name, x := range map[string]struct{ file, code, want string }{
		"a literal":                        {"handlers/show.go", handler(`"prodcts"`, ""), "handlers/show.go:4: " + missing},
		"a literal in back quotes":         {"show.go", handler("`prodcts`", ""), "show.go:4: " + missing},
		"a constant":                       {"show.go", handler("list", `const list = "prodcts"`), "show.go:4: " + missing},
		"a constant of a group":            {"show.go", handler("list", "const (\n\tlist = \"prodcts\"\n)"), missing},
		"a variable":                       {"show.go", handler("list", `var list = "prodcts"`), missing},
		"a known view":                     {"show.go", handler(`"products"`, ""), ""},
		"a view of another app":            {"show.go", handler(`"orders"`, ""), ""},
		"a name made at run time":          {"show.go", handler(`"prod" + suffix`, ""), ""},
		"a name that a function sets":      {"show.go", handler("list", "var list = \"prodcts\"\nfunc init() { list = \"products\" }"), ""},
		"a name that is set with another":  {"show.go", handler("list", "var list = \"\"\nfunc init() { list, err = choose() }"), ""},
		"a name that is declared with one": {"show.go", strings.Replace(handler("list", "const list = \"prodcts\""), "\treturn", "\tlist, err := choose()\n\treturn", 1), ""},
		"a name that is appended to":       {"show.go", handler("list", "var list = \"prod\"\nfunc init() { list += \"ucts\" }"), ""},
		"a name whose address is taken":    {"show.go", handler("list", "var list = \"\"\nfunc init() { flag.StringVar(&list, \"view\", \"products\", \"\") }"), ""},
		"a parameter beside others":        {"show.go", handler("list", "const list = \"prodcts\"\nfunc show(list, title string) {}"), ""},
		"a parameter":                      {"show.go", handler("list", "const list = \"prodcts\"\nfunc show(list string) {}"), ""},
		"a method of another type":         {"show.go", strings.Replace(handler(`"prodcts"`, ""), "*mega.Ctx", "*pdf.Writer", 1), ""},
		"a test":                           {"show_test.go", handler(`"prodcts"`, ""), ""},
		"a folder of test data":            {"testdata/show.go", handler(`"prodcts"`, ""), ""},
	} {
		app := sources(t, "main", map[string]string{x.file: x.code, found: ""})
		other := sources(t, "admin", map[string]string{"views/orders.html": ""})
		p := &Plan{Program: &Program{Apps: []*Part{app, other}}}
		err := p.CheckViews(p.Program.Served(app))
		var f *failure.Failure
		switch {
		case x.want == "" && err != nil:
			t.Errorf("%s: got %v", name, err)
		case x.want != "" && (!errors.As(err, &f) || f.Code != "boot.views" || !strings.Contains(f.Cause.Error(), x.want)):
			t.Errorf("%s: got %v, want %s", name, err, x.want)
		}
	}
}

func TestUnknownViewsAreNamedInOneOrder(t *testing.T) {
	files := map[string]string{"views/products.html": ""}
	for _, folder := range []string{"d", "a", "c", "b"} {
		files[folder+"/show.go"] = handler(`"prodcts"`, "")
	}
	app := sources(t, "main", files)
	p := &Plan{Program: &Program{Apps: []*Part{app}}}
	for range 20 {
		var f *failure.Failure
		if err := p.CheckViews(p.Program.Served(app)); !errors.As(err, &f) || !slices.IsSorted(strings.Split(f.Cause.Error(), "\n")) {
			t.Fatalf("got %v", err)
		}
	}
}
