package browser_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// application returns the folder of an application that mega new has written.
func application(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	tool := filepath.Join(dir, "mega")
	for _, c := range []*exec.Cmd{
		{Dir: "../../..", Args: []string{"go", "build", "-buildvcs=false", "-o", tool, "./cmd/mega"}},
		{Dir: dir, Args: []string{tool, "new", "shop"}},
	} {
		cmd := exec.Command(c.Args[0], c.Args[1:]...)
		cmd.Dir = c.Dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", c.Args, err, out)
		}
	}
	return filepath.Join(dir, "shop")
}

func stages(text []byte) ([]instructions.Stage, error) {
	file, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	all, _, err := instructions.Parse(file.AST, nil)
	return all, err
}

func TestAWrongDockerfileIsRefused(t *testing.T) {
	if _, err := stages([]byte("FROM scratch\nCOPI a b\n")); err == nil {
		t.Error("an unknown instruction is accepted")
	}
}

func TestDockerfileOfANewApplicationIsValid(t *testing.T) {
	dir := application(t)
	text, err := os.ReadFile(filepath.Join(dir, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := stages(text)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d stages, %v\n%s", len(all), err, text)
	}
	// Without this file the image would run with other settings.
	if err := os.WriteFile(filepath.Join(dir, "mega.config.production.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	copied, configs := 0, 0
	for _, command := range all[1].Commands {
		switch c := command.(type) {
		case *instructions.RunCommand:
			t.Errorf("the image has no shell: %s", c)
		case *instructions.EntrypointCommand:
			if c.PrependShell {
				t.Errorf("the program is not the first process: %s", c)
			}
		case *instructions.CopyCommand:
			copied++
			if c.From == "" {
				files, err := filepath.Glob(filepath.Join(dir, c.SourcePaths[0]))
				if err != nil {
					t.Error(err)
				}
				configs += len(files)
			}
			if c.From != "" && c.From != all[0].Name {
				t.Errorf("no stage %q", c.From)
			}
		}
	}
	if copied != 2 || configs != 2 {
		t.Errorf("%d COPY, with %d files of the configuration", copied, configs)
	}
}
