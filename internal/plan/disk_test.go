package plan_test

import (
	"embed"
	"io/fs"
	"testing"

	"github.com/megaframework/mega/internal/plan"
)

//go:embed all:testdata
var everything embed.FS

func TestFilesOnDiskAreThoseThatAreEmbedded(t *testing.T) {
	p, err := plan.NewProgram([]plan.Option{plan.App("web", plan.Public(everything))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	part, paths := p.Apps[0].OnDisk()
	if len(paths) != 1 {
		t.Fatalf("the files of %v are read from disk, want the folder testdata", paths)
	}
	found := map[string]bool{}
	err = fs.WalkDir(part.Public[0].FS, ".", func(name string, entry fs.DirEntry, err error) error {
		found[name] = err == nil && !entry.IsDir()
		return err
	})
	if err != nil || !found["testdata/public/.well-known/security.txt"] || !found["testdata/public/site.css"] {
		t.Errorf("found %v, %v", found, err)
	}
}
