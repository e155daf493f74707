package guide_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a page shows must be code that is compiled and run: each fenced block of
// Go has to appear, line by line, in a test of this folder, in a sample, or in what
// mega new writes, which cmd/mega tests.
func TestEverySnippetIsCompiled(t *testing.T) {
	code := compiled(t)
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("the guide's pages: %q, %v", pages, err)
	}
	for _, page := range append(pages, "../../README.md", "../../sample/crud/README.md", "../../sample/multi/README.md") {
		for _, s := range snippets(read(t, page)) {
			if !strings.Contains(code, flat(s)) {
				t.Errorf("%s shows code that no test compiles:\n%s", page, s)
			}
		}
	}
}

func TestSnippetsAreFoundAndCompared(t *testing.T) {
	found := snippets("text\n```go\na := 1\n\tb()\n```\n```sh\nls\n```\n```go\nc()\n```\n")
	if len(found) != 2 {
		t.Fatalf("found %d snippets in %q, want 2", len(found), found)
	}
	if code := flat("func f() {\n\ta := 1\n\t\tb()\n}"); !strings.Contains(code, flat(found[0])) || strings.Contains(code, flat(found[1])) {
		t.Errorf("the comparison is blind: %q in %q", found, code)
	}
}

// compiled is the text of this folder's tests, without this file, and of the
// applications that the pages speak of.
func compiled(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, pattern := range []string{
		"*_test.go", "../../internal/scaffold/templates/*.go.tmpl", "../../sample/multi/*.go", "../../sample/multi/*/*.go",
		"../../sample/crud/apps/main/*.go", "../../sample/crud/apps/main/*/*.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", pattern, files, err)
		}
		for _, f := range files {
			if f != "snippets_test.go" {
				b.WriteString(flat(strings.ReplaceAll(read(t, f), "[[.Name]]", "shop")))
			}
		}
	}
	return b.String()
}

// snippets returns the fenced blocks of Go in a page.
func snippets(page string) (found []string) {
	for _, rest := range strings.Split(page, "```go\n")[1:] {
		snippet, _, _ := strings.Cut(rest, "\n```")
		found = append(found, snippet)
	}
	return found
}

// flat removes what a page may show otherwise than a file: indentation and
// empty lines. It begins and ends with a line's end, so that only whole lines
// are found in it.
func flat(text string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
