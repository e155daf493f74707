package shell

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	redislog "github.com/redis/go-redis/v9/logging"
	"github.com/spf13/pflag"

	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/spelling"
)

// Main executes a verb of a program that has only the verbs of this package, and returns the exit status.
func Main(p Process, args []string) int {
	redislog.Disable() // the verbs report the client's errors
	p.JSON = asksJSON(args)
	if len(args) > 0 && args[0] == "help" {
		args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--json" }) // of errors: a help is text
		if len(args) > 1 {
			args = []string{args[1], "--help"}
		}
	}
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		return show(p, p.Name+" help", p.write(help(p.Name)))
	}
	if args[0] == "--version" {
		args = append([]string{"version"}, args[1:]...)
	}
	for _, v := range all() {
		if v.Name == args[0] {
			return Run(p, v, args[1:])
		}
	}
	return show(p, p.Name+" help", unknownVerb(p.Name, args[0]))
}

func unknownVerb(program, name string) error {
	var names []string
	for _, v := range all() {
		if !v.Hidden {
			names = append(names, v.Name)
		}
	}
	e := &Error{Code: "cli.unknown_verb", Exit: ExitUsage, Text: fmt.Sprintf("Unknown verb %q.", name)}
	if best := spelling.Nearest(name, names); best != "" {
		e.Actions = []string{"did you mean: " + program + " " + best}
	}
	return e
}

// all returns the verbs of a program that has no others.
func all() []Verb { return append(Verbs(), LimitVerb("limit"), versionVerb()) }

// Run executes one verb with its flags and arguments, and returns the exit
// status.
func Run(p Process, v Verb, args []string) int {
	err := execute(&p, v, args)
	return show(p, p.Name+" "+v.Name+" --help", err)
}

func execute(p *Process, v Verb, args []string) error {
	f := pflag.NewFlagSet(v.Name, pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&p.JSON, "json", false, "write JSON")
	if v.Flags != nil {
		v.Flags(f)
	}
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		text := fmt.Sprintf("usage: %s %s [flags]\n\n%s\n\nflags:\n%s", p.Name, strings.TrimSpace(v.Name+" "+v.Args), v.Long, f.FlagUsages())
		if v.Statuses != "" {
			text += "\nexit status:\n" + v.Statuses
		}
		return p.write(text)
	case err != nil:
		p.JSON = p.JSON || asksJSON(args) // the flag may follow the mistake
		return WrongFlag(p.Name+" "+v.Name, f, err)
	}
	return v.Run(*p, f.Args(), f.ArgsLenAtDash())
}

// asksJSON reports whether the flag --json is among args, before the command.
func asksJSON(args []string) bool {
	i := slices.IndexFunc(args, func(arg string) bool { return arg == "--json" || arg == "--" })
	return i >= 0 && args[i] == "--json"
}

// show writes an error to standard error, with --json as JSON, and returns the exit
// status. help is the command that shows the usage.
func show(p Process, help string, err error) int {
	if err == nil {
		return ExitOK
	}
	if status, ok := errors.AsType[Status](err); ok {
		return int(status)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Code: "cli.failed", Exit: ExitLost, Text: err.Error()}
	}
	if e.Exit == ExitUsage {
		e.Actions = append(e.Actions, "show the help: "+help)
		e.Text = mask.Text(e.Text) // it may repeat arguments
		for i, action := range e.Actions {
			e.Actions[i] = mask.Text(action)
		}
	}
	if p.JSON {
		if text, err := plain.Document(e); err == nil {
			_, _ = io.WriteString(p.Stderr, text)
			return e.Exit
		}
	}
	_, _ = fmt.Fprintf(p.Stderr, "%s: %s  (%s)\n", p.Name, plain.Text(e.Text), e.Code) // others have written parts of it
	for _, a := range e.Actions {
		_, _ = fmt.Fprintf(p.Stderr, "  • %s\n", plain.Text(a))
	}
	return e.Exit
}

func help(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s VERB [flags]\n\nLocks and limits for scripts, without a server or with a Redis.\n\nverbs:\n", name)
	for _, v := range all() {
		if !v.Hidden {
			fmt.Fprintf(&b, "  %-8s %s\n", v.Name, v.Short)
		}
	}
	return b.String()
}
