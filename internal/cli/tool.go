package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/lock"
)

// Tool is a program without an app: cmd/mega.
type Tool struct {
	Long  string
	Verbs []func(*Shell) *cobra.Command
	// OpenLocks opens the locks that a server keeps.
	OpenLocks func(context.Context, Server) (*lock.Locker, error)
}

// Server is a server that keeps locks, with how the programs that use it are
// configured: lock.redis.engine and lock.redis.key.
type Server struct{ URL, Engine, Key string }

// RunTool does what the command line of a tool says, and returns the exit
// status.
func RunTool(p Process, t Tool) int {
	s := newShell(p)
	root := &cobra.Command{
		Use: s.Name, Long: t.Long, Args: noVerb,
		RunE:        func(c *cobra.Command, _ []string) error { return c.Help() },
		Annotations: map[string]string{statuses: toolStatuses},
	}
	root.AddCommand(t.lockVerb(s, p), explainVerb(s), completionVerb(s), versionVerb(s))
	root.PersistentFlags().BoolVar(&s.JSON, "json", false, "write JSON")
	for _, verb := range t.Verbs {
		root.AddCommand(verb(s))
	}
	return execute(s, root, p.Args)
}

const toolStatuses = `   0  done
  64  the command line is wrong
  69  something that was asked for cannot be had now
`

// target is whose locks a tool is to look at.
type target struct {
	tool    Tool
	process Process
	name    string
	urlEnv  string
	server  Server
}

func (t Tool) lockVerb(s *Shell, p Process) *cobra.Command {
	at := &target{tool: t, process: p}
	c := locks{s, at.open}.verb()
	c.Long = "It asks the processes of this user that run here, or with --url a redis. An application's own binary has\n" +
		"the same verbs for its own processes."
	all := c.PersistentFlags()
	all.StringVar(&at.name, "name", "", "ask only processes that are called `NAME`")
	all.StringVar(&at.server.URL, "url", "", "ask the redis at `URL`, such as redis://localhost:6379/0")
	all.StringVar(&at.urlEnv, "url-env", "", "ask the redis at the URL in the variable `VAR`, for one with a password")
	all.StringVar(&at.server.Engine, "engine", "", "`NAME`: lock.redis.engine of the programs that use that redis: queue or redislock")
	all.StringVar(&at.server.Key, "template", "", "`TEMPLATE`: lock.redis.key of the programs that use that redis")
	return c
}

// open finds whom to ask.
func (t *target) open(ctx context.Context) ([]source, func(), error) {
	if err := t.settle(); err != nil {
		return nil, nil, err
	}
	if t.server.URL == "" {
		sources, err := running(ctx, t.process.Environ, t.name)
		if err == nil && len(sources) == 0 {
			err = t.nobody()
		}
		return sharing(sources), func() {}, err
	}
	return t.openServer(ctx)
}

// settle checks the flags, and finds the URL.
func (t *target) settle() error {
	wrong := func(text string, actions ...string) error {
		return &boot.Failure{Code: "cli.wrong_flag", Exit: boot.ExitUsage, Text: text, Actions: actions}
	}
	switch {
	case t.urlEnv != "" && t.server.URL != "":
		return wrong("Both --url and --url-env say where the redis is.")
	case t.urlEnv != "":
		if t.server.URL = lookup(t.process.Environ, t.urlEnv); t.server.URL == "" {
			return wrong(fmt.Sprintf("The variable %s, which --url-env names, is not set.", t.urlEnv))
		}
	case hasPassword(t.server.URL):
		return wrong("A password on the command line is seen by everybody on this machine.",
			"put the URL into a variable, and name that: --url-env REDIS_URL")
	}
	if t.server.URL != "" && t.name != "" {
		return wrong("A redis does not belong to one program: --name goes with the processes that run here.")
	}
	if t.server.URL == "" && t.server.Engine+t.server.Key != "" {
		return wrong("--engine and --template go with --url.")
	}
	return nil
}

func hasPassword(text string) bool {
	masked, err := config.NewURL(text)
	return text != "" && err == nil && masked.String() != text
}

func lookup(environ []string, name string) (value string) {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// nobody is that no process runs.
func (t *target) nobody() error {
	who := "built with mega"
	if t.name != "" {
		who = fmt.Sprintf("called %q", t.name)
	}
	return &boot.Failure{
		Code: "cli.no_process", Exit: boot.ExitUnavailable,
		Text: "No program " + who + " runs here, as this user.",
		Actions: []string{
			"locks that a process keeps in its own memory end with it: there is nothing to see",
			"look at the locks that a redis keeps: mega lock ls --url redis://HOST:6379/0",
		},
	}
}

// openServer connects to the redis.
func (t *target) openServer(ctx context.Context) ([]source, func(), error) {
	shown := t.server.URL
	if u, err := config.NewURL(t.server.URL); err == nil {
		shown = u.String()
	}
	opened, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	locker, err := t.tool.OpenLocks(opened, t.server)
	if err != nil {
		return nil, nil, cannotOpen(shown, err)
	}
	info := locker.Info()
	done := func() { _ = locker.Close(ctx) } // it held nothing
	return []source{{keeper: lockerKeeper{locker}, about: about{Driver: info.Name, Scope: info.Scope.String(), URL: shown}}}, done, nil
}

func cannotOpen(shown string, err error) error {
	f := &boot.Failure{Code: "cli.no_server", Exit: boot.ExitUnavailable, Text: "The locks at " + shown + " cannot be looked at.", Cause: err}
	if errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrUnsupported) {
		f.Code, f.Exit = "cli.wrong_flag", boot.ExitUsage
	}
	return f
}
