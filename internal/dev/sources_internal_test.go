package dev

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
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

func TestSourcesBehindLinksAreFound(t *testing.T) {
	elsewhere, root := t.TempDir(), filepath.Join(t.TempDir(), "link")
	dir := t.TempDir()
	if err := os.Symlink(dir, root); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(elsewhere, ".env.local"), filepath.Join(dir, "main.go")} {
		if err := os.WriteFile(name, []byte("a"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(elsewhere, ".env.local"), filepath.Join(dir, ".env")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "missing.go"), filepath.Join(dir, "missing.go")); err != nil {
		t.Fatal(err)
	}

	want := []string{filepath.Join(root, ".env"), filepath.Join(root, "main.go")}
	before := scan(root)
	if got := slices.Sorted(maps.Keys(before)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, ".env.local"), []byte("ab"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := before.changed(scan(root)); !slices.Equal(got, want[:1]) {
		t.Errorf("after a change behind a link, %q changed, want %q", got, want[:1])
	}
}

func TestFileThatIsRemovedAgainIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		main, passing := filepath.Join(root, "main.go"), filepath.Join(root, "4913")
		for _, name := range []string{main, passing} {
			if err := os.WriteFile(name, []byte("a"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		seen := scan(root)
		delete(seen, passing)
		d := &runner{root: root}
		var changed []string
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_, changed = d.waitForChange(t.Context(), seen)
		}()
		synctest.Wait() // it has seen the file
		if err := os.Remove(passing); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settle + interval/2)
		synctest.Wait()
		select {
		case <-returned:
			t.Fatalf("it returned with %q", changed)
		default:
		}
		if err := os.WriteFile(main, []byte("ab"), 0o600); err != nil {
			t.Fatal(err)
		}
		wrote := time.Now()
		if <-returned; time.Since(wrote) > interval+settle {
			t.Errorf("it took %v", time.Since(wrote))
		}
		if !slices.Equal(changed, []string{main}) {
			t.Errorf("got %q, want %q", changed, main)
		}
	})
}
