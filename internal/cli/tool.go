package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/notation"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/lock"
)

// Tool is a program without an app: cmd/mega.
type Tool struct {
	Long  string
	Verbs []func(*Shell) *cobra.Command
	// OpenLocks opens the locks of a server.
	OpenLocks func(context.Context, Server) (*lock.Locker, error)
}

// Server is a server of locks, with the configuration of the programs that use
// it: lock.redis.engine, lock.redis.key and lock.namespace.
type Server struct{ URL, Engine, Key, Namespace string }

// RunTool executes the command line of a tool and returns the exit status.
func RunTool(p Process, t Tool) int {
	s := newShell(p)
	root := &cobra.Command{
		Use: s.Name, Long: t.Long, Args: noToolVerb,
		RunE:        func(c *cobra.Command, _ []string) error { return c.Help() },
		Annotations: map[string]string{statuses: toolStatuses},
	}
	versionFlag(s, root)
	at := &target{tool: t, process: p}
	defer at.close()
	root.AddCommand(at.lockVerb(s), limited("limit", s, p.Environ), explainVerb(s), completionVerb(s), versionVerb(s))
	root.PersistentFlags().BoolVar(&s.JSON, "json", false, "write JSON")
	for _, verb := range t.Verbs {
		root.AddCommand(verb(s))
	}
	return execute(s, root, p.Args)
}

// noToolVerb is noVerb for a tool. A user who asks the tool for a verb of an
// application, such as doctor, learns where it is.
func noToolVerb(c *cobra.Command, args []string) error {
	err := noVerb(c, args)
	if f, ok := errors.AsType[*failure.Failure](err); ok {
		f.Actions = append([]string{"for a verb of an application, use its own binary: go run . help, in its folder"}, f.Actions...)
	}
	return err
}

const toolStatuses = `   0  done
  64  the command line is wrong
  69  a required service is unavailable
`

// target describes the locks that a tool examines.
type target struct {
	tool    Tool
	process Process
	name    string
	urlEnv  string
	server  Server

	locker *lock.Locker // of the server, once it is connected
}

func (t *target) close() {
	if t.locker != nil {
		_ = t.locker.Close(context.Background()) // it held nothing
	}
}

func (t *target) lockVerb(s *Shell) *cobra.Command {
	c := (&locks{shell: s, find: t.open, atSocket: t.atSocket, environ: t.process.Environ}).verb()
	c.Long = "It calls the processes of this user on this machine, or with --url a Redis. The binary of an application\n" +
		"has the same verbs for its own processes."
	all := c.PersistentFlags()
	all.Var(shell.Text(&t.name), "name", "call only processes with the name `NAME`")
	all.Var(shell.Text(&t.server.URL), "url", "use the Redis at `URL`, such as redis://localhost:6379/0")
	all.Var(shell.Text(&t.urlEnv), "url-env", "use the Redis at the URL in the variable `VAR`, for a URL with a password")
	all.Var(shell.Text(&t.server.Engine), "engine", "`NAME`: lock.redis.engine of the programs that use the Redis: queue or redislock")
	all.StringVar(&t.server.Namespace, "namespace", "", "`NAME`: lock.namespace of the programs that use the Redis or the socket")
	all.Var(shell.Text(&t.server.Key), "template", "`TEMPLATE`: lock.redis.key of the programs that use the Redis")
	return c
}

// open returns the sources.
func (t *target) open(ctx context.Context) ([]source, error) {
	at, err := t.url()
	switch {
	case err != nil:
		return nil, err
	case at != "":
		return t.openServer(ctx, at)
	}
	sources, err := running(ctx, t.process.Environ, t.name, lockComponent)
	if err == nil && len(sources) == 0 {
		err = t.noProcess()
	}
	return sources, err
}

// url returns the URL of the Redis, or "" for the processes of this machine.
func (t *target) url() (string, error) {
	b := shell.Backend{URL: t.server.URL, URLEnv: t.urlEnv}
	if err := b.ResolveURL(t.process.Environ); err != nil {
		return "", failureOf(err)
	}
	wrong := func(text string) (string, error) {
		return "", &failure.Failure{Code: "cli.wrong_flag", Exit: failure.ExitUsage, Text: text}
	}
	if b.URL == "" {
		if t.server.Engine+t.server.Key+t.server.Namespace != "" {
			return wrong("--engine, --template and --namespace need --url; --namespace also fits --socket.")
		}
		return "", nil
	}
	if err := notation.CheckURL(b.URL); err != nil {
		return wrong(shell.Sentence("not a Redis URL: " + err.Error()))
	}
	if t.name != "" {
		return wrong("--name selects processes on this machine. A Redis does not belong to one program.")
	}
	return b.URL, nil
}

// atSocket returns the namespace for --socket, or an error for a flag that does
// not fit it.
func (t *target) atSocket() (namespace string, err error) {
	for _, f := range []struct{ name, value string }{
		{"--url", t.server.URL}, {"--url-env", t.urlEnv}, {"--engine", t.server.Engine}, {"--template", t.server.Key}, {"--name", t.name},
	} {
		if f.value != "" {
			return "", wrongSocket(f.name)
		}
	}
	return t.server.Namespace, nil
}

// noProcess returns the failure for a machine without a running process.
func (t *target) noProcess() error {
	who := "built with mega"
	if t.name != "" {
		who = fmt.Sprintf("with the name %q", t.name)
	}
	f := &failure.Failure{
		Code: "cli.no_process", Exit: failure.ExitUnavailable,
		Text:  "No program " + who + " of this user runs on this machine.",
		Facts: leftOut(t.process.Environ),
	}
	if len(f.Facts) == 0 {
		f.Actions = []string{noProcessNoLock}
	}
	f.Actions = append(f.Actions, "show the locks of scripts: mega lock ls --socket auto", "show the locks of a Redis: mega lock ls --url redis://HOST:6379/0")
	return f
}

// openServer connects to the Redis at its first call.
func (t *target) openServer(ctx context.Context, at string) (_ []source, err error) {
	shown := mask.URL(at)
	if t.locker == nil {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		if t.locker, err = t.tool.OpenLocks(ctx, Server{URL: at, Engine: t.server.Engine, Key: t.server.Key, Namespace: t.server.Namespace}); err != nil {
			return nil, cannotOpen(shown, err)
		}
	}
	info := t.locker.Info()
	return []source{{locks: lockerService{t.locker}, about: about{Driver: info.Name, Scope: info.Scope.String(), URL: shown}}}, nil
}

func cannotOpen(shown string, err error) error {
	f := &failure.Failure{Code: "cli.no_server", Exit: failure.ExitUnavailable, Text: "Cannot read the locks at " + shown + ".", Cause: err}
	if errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrUnsupported) {
		f.Code, f.Exit = "cli.wrong_flag", failure.ExitUsage
	}
	return f
}
