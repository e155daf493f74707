package cli_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/plan"
)

func TestEveryVerbIsReserved(t *testing.T) {
	_, help, _ := shop(t, "help")
	_, verbs, _ := strings.Cut(help, "\nverbs:\n")
	verbs, _, _ = strings.Cut(verbs, "\n\n")
	got := []string{"help"} // which its own page does not list
	for row := range strings.Lines(verbs) {
		got = append(got, strings.Fields(row)[0])
	}
	slices.Sort(got)
	if !slices.Equal(got, plan.Verbs()) {
		t.Errorf("the verbs are\n%q, and those that no command may be called\n%q", got, plan.Verbs())
	}
}

func TestCommandIsAVerbOfTheProgram(t *testing.T) {
	var words []string
	run := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		status := cli.Run(cli.Process{Args: append([]string{"shop"}, args...), Environ: []string{"MEGA_LOG_LEVEL=error"}, Stdout: &out, Stderr: &errs},
			mega.App("web", mega.Module(mega.Command("import", func(_ context.Context, given []string) error { words = given; return nil }))))
		return status, out.String(), errs.String()
	}
	if _, help, _ := run("--help"); !strings.Contains(help, "  import ") {
		t.Errorf("it is not listed:\n%s", help)
	}
	if _, help, _ := run("import", "--help"); !strings.Contains(help, "shop import [ARGUMENT...]") {
		t.Errorf("its help is\n%s", help)
	}
	if status, _, stderr := run("import", "--set", "lock.ttl=5s", "a.csv", "--", "--fast"); status != 0 || !slices.Equal(words, []string{"a.csv", "--fast"}) {
		t.Errorf("exit status %d with %q\n%s", status, words, stderr)
	}
}
