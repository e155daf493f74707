package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/doctor"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
)

func (l *commandLine) configVerb() *cobra.Command {
	return group("config", "print, check and explain the configuration", l.printVerb(), l.checkVerb(), l.schemaVerb(), l.explainKeyVerb(), l.reloadVerb())
}

// plan returns the plan with which the program would boot.
func (l *commandLine) plan() (*plan.Plan, error) { return boot.Plan(l.boot(), l.options...) }

// load returns the configuration with which the program would boot.
func (l *commandLine) load() (*settings.Config, error) {
	made, err := l.plan()
	if err != nil {
		return nil, err
	}
	return made.Config, nil
}

// configuration is the document of config print --json.
type configuration struct {
	Name   string  `json:"name"`
	Env    string  `json:"env"`
	Files  []file  `json:"files"`
	Values []value `json:"values"`
}

// file is a file that was read.
type file struct {
	Path string `json:"path"`
	Keys int    `json:"keys"`
}

// value is a key of the configuration.
type value struct {
	settings.Value
	Default bool `json:"default"`
}

func newConfiguration(c *settings.Config, prefix string) configuration {
	doc := configuration{Name: c.Name, Env: c.Env, Files: filesOf(c), Values: []value{}}
	for _, v := range c.Values() {
		if below(v.Key, prefix) {
			doc.Values = append(doc.Values, value{v, v.Origin.IsDefault()})
		}
	}
	return doc
}

func filesOf(c *settings.Config) []file {
	files := []file{}
	for _, f := range c.Files() {
		files = append(files, file{f.Path, f.Keys})
	}
	return files
}

// below reports whether key is prefix itself, or below it.
func below(key, prefix string) bool {
	return prefix == "" || key == prefix || strings.HasPrefix(key, strings.TrimSuffix(prefix, ".")+".")
}

func (l *commandLine) printVerb() *cobra.Command {
	var origin bool
	c := &cobra.Command{
		Use: "print [KEY]", Short: "print the effective configuration, with secrets masked",
		Long: "It prints every key that has a value, or KEY and the keys below it.\n\n" +
			"With --json: {\"name\", \"env\", \"files\": [{\"path\", \"keys\"}], \"values\": [{\"key\", \"value\", \"default\", \"origin\", \"shadows\"}]}.",
		Args:              arguments(0, "a key"),
		ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			have, err := l.load()
			if err != nil {
				return err
			}
			prefix := strings.Join(args, "")
			if !slices.ContainsFunc(have.Keys(), func(key string) bool { return below(key, prefix) }) {
				return noKey(c, have, prefix)
			}
			doc := newConfiguration(have, prefix)
			return l.shell.Print(doc, func(w io.Writer) { doc.print(w, origin) })
		},
	}
	c.Flags().BoolVar(&origin, "origin", false, "show where each value was set, and the weaker values")
	return c
}

// noKey returns the error for an unknown key, with the most similar key.
func noKey(c *cobra.Command, have *settings.Config, key string) error {
	text := fmt.Sprintf("Unknown key %q.", key)
	if _, err := have.Explain(key); err != nil {
		if problems, ok := errors.AsType[settings.Problems](err); ok && problems[0].Hint != "" {
			return usage(c, "cli.unknown_key", text, problems[0].Hint)
		}
	}
	return usage(c, "cli.unknown_key", text)
}

func (c configuration) print(w io.Writer, origin bool) {
	t := plain.Table{}
	for _, v := range c.Values {
		row := []string{v.Key, oneLine(v.Text)}
		if origin {
			row = append(row, v.Origin.String()+hidden(v.Shadows))
		}
		t.Add(row...)
	}
	t.Print(w)
}

// oneLine returns a value in the form of a table cell.
func oneLine(s string) string {
	if s == "" {
		return `""`
	}
	return strings.ReplaceAll(s, "\n", `\n`)
}

func hidden(shadows []settings.Origin) string {
	if len(shadows) == 0 {
		return ""
	}
	var names []string
	for _, o := range shadows {
		names = append(names, o.String())
	}
	return ", hides " + strings.Join(names, ", ")
}

// checked is the document of config check --json.
type checked struct {
	OK    bool   `json:"ok"`
	Env   string `json:"env"`
	Files []file `json:"files"`
	Set   int    `json:"set"` // the number of keys that a source sets
}

func (l *commandLine) checkVerb() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "list all errors of the configuration, with file and line",
		Long: "It starts nothing and connects to nothing. A driver that cannot be chosen is an error; boot --dry-run shows the\n" +
			"choices, doctor checks the servers. If the configuration has errors, the exit status is 78.\n\nWith --json: {\"ok\", \"env\", \"files\", \"set\"}.",
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			made, err := l.plan()
			if err == nil {
				err = made.Refused
			}
			if err == nil {
				err = doctor.CheckCertificates(made.Config)
			}
			if err != nil {
				return err
			}
			c := made.Config
			doc := checked{OK: true, Env: c.Env, Files: filesOf(c)}
			for _, v := range c.Values() {
				if !v.Origin.IsDefault() {
					doc.Set++
				}
			}
			return l.shell.Print(doc, doc.print)
		},
	}
}

func (c checked) print(w io.Writer) {
	fmt.Fprintf(w, "The configuration is valid: env %s, %s set.\n", c.Env, count(c.Set, "key"))
	t := plain.Table{Indent: "  "}
	for _, f := range c.Files {
		t.Add(f.Path, count(f.Keys, "key"))
	}
	t.Print(w)
}

func (l *commandLine) schemaVerb() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "print the JSON Schema of mega.config.*, for editors",
		Long: "It includes the sections of the program. With the YAML extension of an editor, this first line of\n" +
			"mega.config.yaml enables it:\n\n  # yaml-language-server: $schema=mega.schema.json",
		Example: "  " + l.shell.Name + " config schema > mega.schema.json",
		Args:    arguments(0),
		RunE: func(*cobra.Command, []string) error {
			program, err := plan.NewProgram(l.options, l.flags.only)
			if err != nil {
				return err
			}
			text, err := settings.JSONSchema(settings.Source{Apps: program.Names(), Sections: program.Sections()})
			if err != nil {
				return failure.Of(err)
			}
			return l.shell.write(strings.TrimSuffix(string(text), "\n") + "\n")
		},
	}
}

// completeKey completes the keys of the configuration, or all its sections.
func (l *commandLine) completeKey(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	c, err := l.load()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completing(prefix, c.Keys())
}

// reloaded is an element of the document of config reload --json.
type reloaded struct {
	envelope
	Changes []config.Change `json:"changes"`
}

func (l *commandLine) reloadVerb() *cobra.Command {
	return &cobra.Command{
		Use: "reload", Short: "make the running processes read the configuration again",
		Long: "Live keys take effect at once. The other changed keys are listed and need a restart. If the configuration\n" +
			"has an error, a process keeps its current values.\n\n" +
			"With --json: a list of {\"name\", \"pid\", \"driver\", \"scope\", \"changes\": [{\"key\", \"old\", \"new\", \"origin\", \"live\"}],\n" +
			"\"error\"}, one for each process.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error {
			next, err := l.load()
			if err != nil { // the processes would refuse it, too
				return err
			}
			sources, err := l.processes(c.Context())
			if err != nil {
				return err
			}
			timeout := next.Boot.WaitFor + askTime // a process may wait for a provider of its configuration
			answers, err := askWithin(c.Context(), timeout, sources, func(ctx context.Context, p lockService) ([]config.Change, error) {
				return p.(*admin.Client).Reload(ctx)
			})
			all := make([]reloaded, len(sources))
			for i, s := range sources {
				all[i] = reloaded{s.envelope(), append([]config.Change{}, answers[i]...)}
			}
			return errors.Join(l.shell.Print(all, func(w io.Writer) { printReloaded(w, all) }), err)
		},
	}
}

func printReloaded(w io.Writer, all []reloaded) {
	for _, r := range all {
		if r.Error != "" {
			continue
		}
		fmt.Fprintf(w, "%s: %s changed\n", r.short(), count(len(r.Changes), "key"))
		t := plain.Table{Indent: "  "}
		for _, c := range r.Changes {
			force := "in force"
			if !c.Live {
				force = "after a restart"
			}
			t.Add(c.Key, fmt.Sprintf("%s -> %s", oneLine(c.Old), oneLine(c.New)), force, c.Origin)
		}
		t.Print(w)
	}
}
