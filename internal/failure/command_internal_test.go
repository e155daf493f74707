package failure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGoRunIsRecognisedByThePathOfTheExecutable(t *testing.T) {
	const hash = "b1aecdf3ec2363c2a5f69713aa8263fca6561798dcc09c23f49a1e735e0a72a3"
	for exe, want := range map[string]bool{
		"T/go-build2917444340/b001/exe/shop":       true,
		"H/.cache/go-build/b1/" + hash + "-d/shop": true, // run again, unchanged
		"/usr/local/bin/shop":                      false,
	} {
		if GoRun(exe) != want {
			t.Errorf("%s: got %v", exe, !want)
		}
	}
}

func TestPackageIsNamedFromTheFolderOfTheUser(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"cmd/shop", "other"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"go.mod": "// the shop\nmodule example.org/shop // v1\n", "other/go.mod": "module example.org/other\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct{ dir, path, want string }{
		{"", "example.org/shop", "."},
		{"", "example.org/shop/cmd/shop", "./cmd/shop"},
		{"cmd", "example.org/shop/cmd/shop", "./shop"},
		{"cmd/shop", "example.org/shop/cmd/shop", "."},
		{"cmd/shop", "example.org/shop", "../.."},
		{"cmd", "example.org/shop", ".."},
		{"other", "example.org/shop/cmd/shop", "example.org/shop/cmd/shop"}, // by a go.work
		{"", "command-line-arguments", "."},
	} {
		if got := packageFrom(filepath.Join(root, filepath.FromSlash(x.dir)), x.path, "example.org/shop"); got != x.want {
			t.Errorf("%s from %q: got %s, want %s", x.path, x.dir, got, x.want)
		}
	}
	if got := packageFrom("", "", ""); got != "." {
		t.Errorf("of an unknown program: got %s", got)
	}
}

// The executable of mega dev is in a temporary folder, so its name is no command.
func TestProgramOfDevIsStartedWithGoRun(t *testing.T) {
	if got := Command("shop"); got != "shop" {
		t.Errorf("got %q without mega dev, want its name", got)
	}
	t.Setenv("MEGA_RUN_DEV", "paths")
	if got := Command("shop"); !strings.HasPrefix(got, "go run ") {
		t.Errorf("got %q in mega dev, want go run", got)
	}
}
