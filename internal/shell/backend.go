package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/variable"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Backend names where the locks are: a Redis, or the hub at a socket.
type Backend struct {
	URL, URLEnv, Socket         string
	Engine, Template, Namespace string
}

// Flags adds the flags that select the backend.
func (b *Backend) Flags(f *pflag.FlagSet) {
	b.placeFlags(f)
	f.Var(Text(&b.Engine), "engine", "`NAME`: lock.redis.engine of the programs that use the Redis: queue or redislock")
}

// placeFlags adds the flags that locks and limits share.
func (b *Backend) placeFlags(f *pflag.FlagSet) {
	f.Var(Text(&b.URL), "url", "use the Redis at `URL`, such as redis://localhost:6379/0")
	f.Var(Text(&b.URLEnv), "url-env", "use the Redis at the URL in the variable `VAR`, for a URL with a password")
	f.Var(Text(&b.Socket), "socket", "use the hub at the socket `PATH`; auto, the default, is this user's own")
	f.Var(Text(&b.Template), "template", "`TEMPLATE`: lock.redis.key of the programs that use the Redis")
	f.StringVar(&b.Namespace, "namespace", "", "`NAME`: lock.namespace of the programs that use the Redis or the socket")
}

// Resolve checks the flags and finds what they leave out.
func (b *Backend) Resolve(environ []string) error {
	if err := b.ResolveURL(environ); err != nil {
		return err
	}
	switch {
	case b.Socket != "" && b.URL+b.URLEnv != "":
		return wrongFlag("--socket and --url exclude each other.")
	case driver.NamespaceFault(b.Namespace) != "": // no program could share it
		return wrongFlag("--namespace %q is not valid: %s.", b.Namespace, driver.NamespaceFault(b.Namespace))
	case b.URL != "":
		return nil
	case b.Engine+b.Template != "":
		return wrongFlag("--engine and --template need --url.")
	}
	if b.Socket == "" || b.Socket == "auto" {
		if b.Socket = cluster.AutoSocket(); b.Socket == "" {
			return usage("cli.wrong_flag", "This system has no socket that processes share.", "keep the lock in a Redis: --url redis://HOST:6379/0")
		}
		return nil
	}
	path, err := filepath.Abs(b.Socket)
	if err != nil {
		return wrongFlag("--socket %s: %v.", b.Socket, err)
	}
	b.Socket = path
	return nil
}

// ResolveURL checks --url and --url-env, and sets URL to the value of the variable.
func (b *Backend) ResolveURL(environ []string) error {
	switch {
	case b.URL != "" && b.URLEnv != "":
		return wrongFlag("--url and --url-env exclude each other.")
	case len(mask.Credentials(b.URL)) > 0:
		return usage("cli.wrong_flag", "All users of this machine can read a password on a command line.",
			"put the URL into a variable, and name the variable: --url-env REDIS_URL")
	case b.URLEnv == "":
		return nil
	}
	if b.URL = variable.Get(environ, b.URLEnv); b.URL == "" {
		return wrongFlag("The variable %s, which --url-env names, is not set.", b.URLEnv)
	}
	return nil
}

// String returns the backend for people, without credentials.
func (b *Backend) String() string {
	if b.URL != "" {
		return mask.URL(b.URL)
	}
	return b.Socket
}

// at returns where the locks are, or "" if err names the place itself.
func (b *Backend) at(err error) string {
	if strings.Contains(mask.Text(err.Error()), b.String()) {
		return ""
	}
	return " at " + b.String()
}

// flags returns the flags that select the backend, without credentials.
func (b *Backend) flags() string {
	var s strings.Builder
	for _, f := range []struct{ name, value string }{
		{"url-env", b.URLEnv}, {"socket", b.Socket}, {"engine", b.Engine}, {"template", b.Template}, {"namespace", b.Namespace},
	} {
		if f.value != "" {
			s.WriteString(" --" + f.name + " " + f.value)
		}
	}
	if b.URL != "" && b.URLEnv == "" {
		s.WriteString(" --url " + mask.URL(b.URL))
	}
	return s.String()
}

// closeTime bounds the end of a connection.
const closeTime = 2 * time.Second

// Connection is an open backend.
type Connection struct {
	*lock.Locker
	node *cluster.Node // nil with a Redis
}

// Open connects to the backend. pid is the process that holders see.
func (b *Backend) Open(ctx context.Context, p Process, pid int) (*Connection, error) {
	return b.connect(ctx, p, pid, b.recruit(p))
}

// connect is Open with the function that a missing hub calls.
func (b *Backend) connect(ctx context.Context, p Process, pid int, recruit func(context.Context) error) (*Connection, error) {
	c := &Connection{}
	d, err := c.dial(ctx, b, recruit)
	if err != nil {
		return nil, err
	}
	if c.Locker, err = lock.New(d, lock.Config{Identify: func(_ context.Context, h *lock.Holder) { h.App, h.PID = p.Name, pid }}); err != nil {
		return nil, errors.Join(err, d.Close(ctx), c.leave(ctx))
	}
	return c, nil
}

// join connects to the hub at the socket. recruit is called if there is none.
func (b *Backend) join(ctx context.Context, recruit func(context.Context) error) (*cluster.Node, error) {
	return cluster.Dial(ctx, cluster.Config{Socket: b.Socket, Recruit: recruit})
}

// recruit returns the function that starts the hub process: this process never
// becomes the hub (X7).
func (b *Backend) recruit(p Process) func(context.Context) error {
	return func(ctx context.Context) error { return startHub(ctx, p, b.Socket) }
}

func (c *Connection) dial(ctx context.Context, b *Backend, recruit func(context.Context) error) (driver.Driver, error) {
	if b.URL != "" {
		return redis.OpenLock(ctx, redis.Config{URL: b.URL, Engine: b.Engine, Key: b.Template, Namespace: b.Namespace})
	}
	var err error
	if c.node, err = b.join(ctx, recruit); err != nil {
		return nil, err
	}
	return c.node.Locks(b.Namespace), nil
}

func (c *Connection) leave(ctx context.Context) error {
	if c.node == nil {
		return nil
	}
	return c.node.Close(ctx)
}

// Lease acquires the lease of an order, which is checked.
func (c *Connection) Lease(ctx context.Context, o *Order) (*lock.Lease, error) {
	options := o.options()
	if o.Slots > 0 {
		options = append(options, lock.Slots(o.Slots))
	}
	return c.Acquire(ctx, o.Key, options...)
}

// Leave ends the connection. A lease that is left ends at its TTL.
func (c *Connection) Leave() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = errors.Join(c.Close(ctx), c.leave(ctx)) // the command is over: nothing depends on it
}

// stepError is the error of --init or --cleanup.
type stepError struct {
	name string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("--%s: %v", e.name, e.err) }

func (e *stepError) Unwrap() error { return e.err }

// errForGone ends the wait of an acquire.
var errForGone = errors.New("the process --for has ended")

// Explain converts an error of the lock to the error of a verb.
func Explain(b *Backend, err error) *Error {
	e := &Error{Code: codeOf(err, driver.ErrUnavailable), Exit: ExitUnavailable, Text: fmt.Sprintf("Cannot use the locks%s: %v.", b.at(err), err)}
	if busy, ok := errors.AsType[*lock.NotAcquiredError](err); ok && busy.Withdrawn {
		e.Actions = []string{
			"show the reasons: mega lock show " + busy.Key + b.flags(),
			"after the repair, put each slot back: mega lock heal " + busy.Key + " SLOT --reason TEXT" + b.flags(),
		}
	}
	step, failed := errors.AsType[*stepError](err)
	switch {
	case failed:
		e.Code, e.Text = "cli.failed", fmt.Sprintf("Cannot prepare a slot: %v.", step)
	case errors.Is(err, lock.ErrNotAcquired), errors.Is(err, errForGone):
		e.Exit, e.Text = ExitNotAcquired, fmt.Sprintf("Not acquired: %v.", err)
		if !errors.Is(err, lock.ErrNotAcquired) { // err may have the code of an outage
			e.Code = driver.ErrNotAcquired.Code()
		}
	case errors.Is(err, lock.ErrLost):
		e.Exit, e.Text = ExitLost, fmt.Sprintf("The lease was lost: %v.", err)
	case errors.Is(err, lock.ErrInvalid), errors.Is(err, lock.ErrUnsupported), errors.Is(err, lock.ErrPoolSize):
		e.Exit = ExitUsage
	}
	e.Text = mask.Text(e.Text)
	return e
}

// coded is an error with a dotted code.
type coded interface {
	error
	Code() string
}

// codeOf returns the code of err, or of otherwise if err has none.
func codeOf(err error, otherwise coded) string {
	if known, ok := errors.AsType[coded](err); ok {
		return known.Code()
	}
	return otherwise.Code()
}

// program returns the path of this program, to start it again.
func program() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return path, nil
}
