package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/internal/spelling"
)

// explainVerb shows the catalogue of codes, or one of its entries.
func explainVerb(s *Shell) *cobra.Command {
	return &cobra.Command{
		Use: "explain [CODE]", Short: "explain a code such as lock.not_acquired, and what to do",
		Long: "It explains a code of an error, a log line or an answer. Without CODE it lists all codes.\n" +
			"With --json: {\"code\", \"exit\", \"title\", \"means\", \"causes\", \"do\"}, or a list of them.",
		Args: arguments(0, "a code"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range failure.Codes() {
				if len(args) == 0 {
					names = append(names, cobra.CompletionWithDesc(c.Name, c.Title))
				}
			}
			return completing(prefix, names)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return s.Print(failure.Codes(), printCodes)
			}
			code, err := failure.Explain(args[0])
			if err != nil {
				return unknownCode(c, args[0], err)
			}
			return s.Print(code, func(w io.Writer) { _ = code.Print(w) })
		},
	}
}

// unknownCode returns an error with the most similar code, or all related
// codes.
func unknownCode(c *cobra.Command, code string, err error) error {
	const list = "list all codes: "
	if best := spelling.Nearest(strings.ToLower(code), codeNames()); best != "" {
		text := fmt.Sprintf("Unknown code %q.", code)
		return usage(c, "cli.unknown_code", text, "did you mean: "+typed(c)+" "+best, list+typed(c))
	}
	return usage(c, "cli.unknown_code", shell.Sentence(err.Error()), list+typed(c))
}

func codeNames() (names []string) {
	for _, c := range failure.Codes() {
		names = append(names, c.Name)
	}
	return names
}

func printCodes(w io.Writer) {
	t := plain.Table{}
	t.Add("CODE", "EXIT", "MEANS")
	for _, c := range failure.Codes() {
		exit := "-"
		if c.Exit != 0 {
			exit = fmt.Sprint(c.Exit)
		}
		t.Add(c.Name, exit, c.Title)
	}
	t.Print(w)
}
