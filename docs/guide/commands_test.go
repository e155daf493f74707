package guide_test

import (
	"io"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
)

// Catalogue is what the command of the page on operations fills.
type Catalogue struct{ files []string }

func (c *Catalogue) Import(ctx *mega.Ctx, files []string) error {
	for _, file := range files {
		if err := ctx.Lock.With("import:"+file, func(ctx *mega.Ctx) error { return c.read(ctx, file) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalogue) read(_ *mega.Ctx, file string) error {
	c.files = append(c.files, file)
	return nil
}

func TestCommandOfThePageImports(t *testing.T) {
	catalogue := &Catalogue{}
	p := boot.Process{Name: "shop", Stderr: io.Discard, Command: "import", Words: []string{"a.csv", "b.csv"}}
	status := boot.Main(t.Context(), p, mega.App("main",
		mega.Provide(func() *Catalogue { return catalogue }),
		mega.Command("import", (*Catalogue).Import),
	))
	if got := strings.Join(catalogue.files, " "); status != 0 || got != "a.csv b.csv" {
		t.Errorf("exit status %d, imported %q", status, got)
	}
}
