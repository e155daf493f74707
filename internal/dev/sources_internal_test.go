package dev

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSourcesAreTheFilesThatCanChangeTheProgram(t *testing.T) {
	root := t.TempDir()
	write := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{".env", "go.mod", "main.go", "mega.config.yaml", "migrations/1.sql", "tool.sh", "web/views/home.html"}
	for _, name := range want {
		write(name, 0o600)
	}
	write("tool.sh", 0o600)
	for _, name := range []string{
		".git/index", ".hidden", "_draft.go", "main_test.go", "main.go~", "shop.db", "shop.db-wal", "node_modules/x/y.js",
		"testdata/x.go", "vendor/x/x.go", "tool/go.mod", "tool/main.go", "views/.home.html.swp",
	} {
		write(name, 0o600)
	}
	write("bin/shop", 0o700)
	before := scan(root)
	var got []string
	for path := range before {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, filepath.ToSlash(rel))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if err := os.Remove(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	write("new.go", 0o600)
	if err := os.Truncate(filepath.Join(root, ".env"), 0); err != nil {
		t.Fatal(err)
	}
	changed := before.changed(scan(root))
	for _, name := range []string{"go.mod", "new.go", ".env"} {
		if !slices.Contains(changed, filepath.Join(root, name)) {
			t.Errorf("%s is not among the changed files %q", name, changed)
		}
	}
	if slices.Contains(changed, filepath.Join(root, "tool.sh")) {
		t.Error("a file that did not change is among the changed ones")
	}
}
