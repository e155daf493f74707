package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/shell"
)

// The default times, as for the same verbs of the command line.
const (
	defaultWait  = 10 * time.Second
	defaultTTL   = 30 * time.Second
	defaultGrace = 5 * time.Second
)

func (s *server) addTools() {
	addTool(s, "lock_exec", "Run a command under a lock: wait for the lock, run the command once, give the lock back when it has ended. "+
		"With slots N, at most N commands of the key run at once. The command has MEGA_RUN_KEY, MEGA_RUN_FENCE, MEGA_RUN_SLOT and MEGA_RUN_TOKEN. "+
		"It is ended if the lock is lost (lock.lost). Returns {status, stdout, stderr}; status is the command's.", s.lockExec)
	addTool(s, "lock_acquire", "Take a lock for several steps and return {handle, key, fence, slot, token}. The lock renews itself, and is given back "+
		"by lock_release or with the end of the connection. Prefer lock_exec where one command does the work.", s.acquire)
	addTool(s, "lock_renew", "Check that a lock from lock_acquire is still held, and begin its max anew. Fails with lock.lost.", s.renew)
	addTool(s, "lock_release", "Give back a lock from lock_acquire.", s.release)
	addTool(s, "lock_ls", "List the locks that have a holder or a waiter: {driver, scope, total, locks}.", s.list)
	addTool(s, "limit_exec", "Wait until a limit allows it, and run a command. In any interval of the length of a rate, at most N units are granted, "+
		"to all users of the key together. Returns {status, stdout, stderr}; status is the command's.", s.limitExec)
	addTool(s, "limit_permit", "Take units of a limit without running a command: {allowed: true}, or the error limit.limited with the time after "+
		"which to try again. It does not wait unless wait is given. A refusal consumes nothing.", s.limitPermit)
}

// lockArgs are the arguments that name a lease.
type lockArgs struct {
	Key   string `json:"key" jsonschema:"the name of the lock: any text without spaces that all users agree on"`
	Slots int    `json:"slots,omitempty" jsonschema:"let this many holders have the key at once, each with a slot number"`
	Wait  string `json:"wait,omitempty" jsonschema:"wait at most this long for the lock, such as 30s or 1h; 0s does not wait; default 10s"`
	TTL   string `json:"ttl,omitempty" jsonschema:"others wait this long if this machine dies; default 30s"`
	Label string `json:"label,omitempty" jsonschema:"a text that others see about the holder"`
	FIFO  bool   `json:"fifo,omitempty" jsonschema:"serve waiters strictly first come, first served"`
}

// order returns the order of a lease, which is not checked yet.
func (in *lockArgs) order(b shell.Backend) (o shell.Order, err error) {
	o = shell.Order{Backend: b, Key: in.Key, Slots: in.Slots, Label: in.Label, FIFO: in.FIFO}
	if o.Wait, err = parseDuration("wait", in.Wait, defaultWait); err != nil {
		return o, err
	}
	o.TTL, err = parseDuration("ttl", in.TTL, defaultTTL)
	return o, err
}

// parseDuration parses an argument, which is otherwise if text is empty.
func parseDuration(name, text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, invalidArgument("%s %q is not a time such as 500ms, 10s or 1h.", name, text)
	}
	return d, nil
}

// invalidArgument returns the error for an argument that is not valid.
func invalidArgument(format string, args ...any) error {
	return &shell.Error{Code: "cli.invalid_argument", Exit: shell.ExitUsage, Text: fmt.Sprintf(format, args...)}
}

// arguments replaces the flags in the errors of package shell by the arguments of the
// tools.
var arguments = strings.NewReplacer("--slots", "slots", "--wait", "wait", "--ttl", "ttl", "--grace", "grace", "--label", "label",
	"--init", "init", "--cleanup", "cleanup", "--cost", "cost", "--rate", "rates")

// withArguments returns an error that names arguments, which the client can correct,
// in place of flags. Other errors may quote a key that looks like a flag.
func withArguments(e *shell.Error) *shell.Error {
	if !slices.Contains([]string{"cli.wrong_flag", "cli.failed", "limit.invalid_option"}, e.Code) {
		return e
	}
	named := *e
	named.Text = arguments.Replace(e.Text)
	return &named
}

// commandArgs are the arguments that name a command.
type commandArgs struct {
	Command []string `json:"command" jsonschema:"the program and its arguments; no shell splits or expands them"`
	Dir     string   `json:"dir,omitempty" jsonschema:"the folder in which the command runs; default: the server's"`
	Grace   string   `json:"grace,omitempty" jsonschema:"the time between SIGTERM and SIGKILL when the command has to end; default 5s"`
}

// grace checks that there is a command, and returns its grace.
func (in *commandArgs) grace() (time.Duration, error) {
	if len(in.Command) == 0 || in.Command[0] == "" {
		return 0, &shell.Error{Code: "cli.missing_argument", Exit: shell.ExitUsage, Text: "The command is missing.", Actions: []string{`a program and its arguments: ["make", "test"]`}}
	}
	return parseDuration("grace", in.Grace, defaultGrace)
}

// execArgs are the arguments of lock_exec.
type execArgs struct {
	lockArgs
	commandArgs
	Init    string `json:"init,omitempty" jsonschema:"a line for sh that prepares the slot before the command; needs slots"`
	Cleanup string `json:"cleanup,omitempty" jsonschema:"a line for sh that undoes init and the command, whatever has happened; needs slots"`
}

func (s *server) lockExec(ctx context.Context, in execArgs) (any, error) {
	grace, err := in.grace()
	if err != nil {
		return nil, err
	}
	o, err := in.order(s.config.Backend)
	if err != nil {
		return nil, err
	}
	o.Grace, o.Init, o.Cleanup = grace, in.Init, in.Cleanup
	return capturing(s.config.Process, in.Dir, func(p shell.Process, stdio shell.Stdio) error {
		return shell.Exec(ctx, p, o, in.Command, stdio)
	})
}

// listArgs are the arguments of lock_ls.
type listArgs struct {
	Prefix string `json:"prefix,omitempty" jsonschema:"list only keys that begin with this text"`
}

func (s *server) list(ctx context.Context, in listArgs) (any, error) {
	b := s.config.Backend
	all, err := shell.List(ctx, s.config.Process, &b, in.Prefix)
	if err != nil && len(all.Locks) == 0 { // nothing is known
		return nil, err
	}
	return all, err
}

// limitArgs are the arguments that name units of a limit.
type limitArgs struct {
	Key   string   `json:"key" jsonschema:"the name of the limit: any text without spaces that all users agree on"`
	Rates []string `json:"rates" jsonschema:"the rates that must all allow it, each N/TIME, such as 5/800ms or 10000/24h; all users of the key give the same"`
	Cost  int      `json:"cost,omitempty" jsonschema:"the number of units; default 1"`
	Wait  string   `json:"wait,omitempty" jsonschema:"wait at most this long, such as 30s"`
}

// permit takes units of a limit.
func (s *server) permit(ctx context.Context, in limitArgs, wait time.Duration) (err error) {
	o := shell.PermitOrder{Backend: s.config.Backend, Key: in.Key, Cost: max(in.Cost, 1)}
	if in.Cost < 0 {
		return invalidArgument("cost %d is not valid; it must be 1 or more.", in.Cost)
	}
	if len(in.Rates) == 0 {
		return &shell.Error{Code: "cli.missing_argument", Exit: shell.ExitUsage, Text: "The rates are missing.", Actions: []string{`five in every 800 ms: ["5/800ms"]`}}
	}
	for _, text := range in.Rates {
		if err := o.Rates.Set(text); err != nil {
			return invalidArgument("rate %q: %v.", text, err)
		}
	}
	if o.Wait, err = parseDuration("wait", in.Wait, wait); err != nil {
		return err
	}
	return shell.Permit(ctx, s.config.Process, o)
}

// limitExecArgs are the arguments of limit_exec.
type limitExecArgs struct {
	limitArgs
	commandArgs
}

func (s *server) limitExec(ctx context.Context, in limitExecArgs) (any, error) {
	grace, err := in.grace()
	if err != nil {
		return nil, err
	}
	where := shell.Stdio{Dir: in.Dir}
	if _, err := where.Find(in.Command[0]); err != nil { // before anything is consumed
		return nil, err
	}
	if err := s.permit(ctx, in.limitArgs, defaultWait); err != nil {
		return nil, err
	}
	return capturing(s.config.Process, in.Dir, func(p shell.Process, stdio shell.Stdio) error {
		return shell.Command(ctx, p, in.Command, stdio, grace)
	})
}

// allowed is the answer of limit_permit.
type allowed struct {
	Allowed bool `json:"allowed"`
}

func (s *server) limitPermit(ctx context.Context, in limitArgs) (any, error) {
	if err := s.permit(ctx, in, 0); err != nil {
		return nil, err
	}
	return allowed{true}, nil
}
