package shell

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/megaframework/mega/internal/plain"
)

// The exit statuses of the verbs, besides the command's own (X2).
const (
	ExitOK          = 0
	ExitUsage       = 64  // the command line is not valid
	ExitUnavailable = 69  // the backend does not answer, or a slot cannot be prepared
	ExitLost        = 70  // the lease was lost; the command was ended
	ExitNotAcquired = 75  // the lock was busy until the wait ended
	ExitNotRunnable = 126 // the command cannot be started
	ExitNotFound    = 127 // the command does not exist
)

// execStatuses describes the exit statuses in the help.
const execStatuses = `  64  the command line is wrong
  69  the backend is unavailable, or --init failed
  70  the lease was lost; the command was ended
  75  not acquired: the lock was busy until --wait had passed
 126  the command cannot be started
 127  the command does not exist
   n  otherwise the exit status of the command, 128+n if signal n ended it
`

// Error is why a verb failed.
type Error struct {
	Code    string   `json:"code"` // of the catalogue, as "lock.not_acquired"
	Exit    int      `json:"exit"`
	Text    string   `json:"text"`
	Actions []string `json:"actions,omitempty"`
}

func (e *Error) Error() string { return e.Text }

// Status is the error of a verb that has nothing to report: the exit status of
// its command.
type Status int

func (s Status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func usage(code, text string, actions ...string) error {
	return &Error{Code: code, Exit: ExitUsage, Text: text, Actions: actions}
}

// wrongFlag returns the usage error for the value of a flag.
func wrongFlag(format string, args ...any) error {
	return usage("cli.wrong_flag", fmt.Sprintf(format, args...))
}

// Process describes how the program was started.
type Process struct {
	Name string // of the program
	// Verbs are the arguments in front of a verb of this package, such as
	// "lock". The program is started with them again for the holder and the hub.
	Verbs   []string
	As      string // the command line up to the arguments of the verb, if it differs from Verbs
	Environ []string
	Stdout  io.Writer
	Stderr  io.Writer
	JSON    bool
}

// warn writes a message to standard error.
func (p *Process) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, plain.Text(fmt.Sprintf(format, args...))) // nothing can report a failed write
}

// write writes the result of a verb.
func (p *Process) write(text string) error {
	if _, err := io.WriteString(p.Stdout, text); err != nil {
		return &Error{Code: "cli.output", Exit: ExitUnavailable, Text: fmt.Sprintf("Cannot write the result: %v.", err)}
	}
	return nil
}

// Verb is a verb of the command line.
type Verb struct {
	Name, Args, Short, Long string
	Statuses                string // the exit statuses, for the help
	Hidden                  bool   // the program starts it itself
	Flags                   func(*pflag.FlagSet)
	// Run executes the verb. dash is how many of args are in front of "--", or
	// -1 without one. The error is an *Error or a Status.
	Run func(p Process, args []string, dash int) error
}

// Verbs returns the verbs, with flags of their own: call it once per command
// line.
func Verbs() []Verb {
	return []Verb{execVerb(), acquireVerb(), releaseVerb(), renewVerb(), lsVerb(), holderVerb(), keeperVerb(), hubVerb()}
}

// line returns the command line of a verb, up to its arguments.
func (p *Process) line(verb string) string {
	if p.As != "" {
		return p.As
	}
	return strings.Join(slices.Concat([]string{p.Name}, p.Verbs, []string{verb}), " ")
}

// keyAndCommand splits the arguments "KEY -- CMD ARG…" of a verb, which is called
// as line. flags are those that its hints need after KEY.
func keyAndCommand(line, flags string, args []string, dash int) (key string, command []string, err error) {
	switch {
	case len(args) == 0 || dash == 0:
		return "", nil, usage("cli.missing_argument", "KEY is missing.", "name one: "+line+" KEY"+flags+" -- CMD")
	case dash < 0:
		return "", nil, usage("cli.missing_argument", `"--" in front of the command is missing.`, line+" "+args[0]+flags+" -- "+cmp.Or(strings.Join(args[1:], " "), "CMD"))
	case dash > 1:
		return "", nil, usage("cli.extra_argument", fmt.Sprintf("%s takes one KEY in front of \"--\"; %q is too much.", line, args[1]))
	case len(args) == 1:
		return "", nil, usage("cli.missing_argument", `The command after "--" is missing.`, line+" "+args[0]+flags+" -- CMD")
	case args[1] == "": // a variable that is not set
		return "", nil, usage("cli.missing_argument", `The command after "--" is empty.`, line+" "+args[0]+flags+" -- CMD")
	}
	return args[0], args[1:], nil
}

// find returns the path of a command.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", cannotRun(name, err)
	}
	return path, nil
}

// cannotRun returns the error for a command that cannot be started.
func cannotRun(name string, err error) error {
	e := &Error{Code: "cli.invalid_argument", Exit: ExitNotRunnable, Text: fmt.Sprintf("Cannot run %s: %v.", name, err)}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		e.Exit, e.Text = ExitNotFound, fmt.Sprintf("The command %s does not exist.", name)
	}
	return e
}
