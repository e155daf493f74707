package doctor

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock/driver"
)

// Checks of the addresses and servers of a configuration.

// passed returns a finding without a problem.
func passed(format string, args ...any) Finding {
	return Finding{Verdict: OK, Text: fmt.Sprintf(format, args...)}
}

// failed returns the finding of a check that ended with err. action is the remedy.
func failed(action string, err error) Finding {
	return Finding{Verdict: Fail, Text: err.Error(), Action: strings.Join(strings.Fields(action), " ")}
}

// addressCheck returns a check that opens an address and closes it again. An address
// that a running process of this program uses is no problem.
func addressCheck(c *settings.Config, environ []string, key, addr string) func(context.Context) Finding {
	return func(ctx context.Context) Finding {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		switch {
		case err == nil:
			return passed("%s is free", l.Addr()).withCleanup(l.Close())
		case !errors.Is(err, syscall.EADDRINUSE):
			return failed(failure.Set(c, key, "127.0.0.1:0"), err)
		}
		if pid := listening(ctx, environ, c.Name, addr); pid != 0 {
			return passed("%s is in use by this program, which runs already, pid %d", addr, pid)
		}
		if key == "ops.addr" && c.Origin(key).IsDefault() {
			return Finding{Verdict: Warn, Text: addr + " is taken; the program takes a free port in its place", Action: failure.Set(c, key, "127.0.0.1:9091")}
		}
		return failed("if it is not this program that runs already: "+failure.Set(c, key, listen.Beside(addr)), err)
	}
}

// listening returns the pid of a process of this program that listens on addr, or
// 0 if no process of this user reports that.
func listening(ctx context.Context, environ []string, name, addr string) int {
	all, err := admin.Find(ctx, admin.Folders(environ), name)
	if err != nil {
		return 0
	}
	if at, err := net.ResolveTCPAddr("tcp", addr); err == nil { // a listener reports the address of a name
		addr = at.String()
	}
	host := strings.TrimPrefix(listen.URL(addr), "http://")
	for _, f := range all {
		var r plan.Report
		if f.Err != nil || f.Info.Main != admin.MainPackage() || admin.Dial(f.Path).Get(ctx, "/boot", &r) != nil {
			continue
		}
		urls := []string{f.Info.Ops}
		for _, a := range r.Apps {
			urls = append(urls, a.URL)
		}
		if slices.ContainsFunc(urls, func(text string) bool { u, err := url.Parse(text); return err == nil && u.Host == host }) {
			return f.Info.PID
		}
	}
	return 0
}

// withCleanup returns f, or a failed finding if err, the error of a cleanup, is not
// nil.
func (f Finding) withCleanup(err error) Finding {
	if err != nil {
		f.Verdict, f.Text = Fail, f.Text+", but "+err.Error()
	}
	return f
}

// Limits beyond which a Redis is a poor backend for locks: round trip and clock
// skew.
const (
	maxRoundTrip = 50 * time.Millisecond // of each acquire
	maxSkew      = time.Second           // fences come from the server's clock
)

// cacheCheck returns a check that reads the time of a cache's server.
func cacheCheck(c *settings.Config, alias string) func(context.Context) Finding {
	key := "cache." + alias + ".url"
	return func(ctx context.Context) Finding {
		client, err := redis.NewClient(c.Cache[alias].URL.Reveal())
		if err != nil {
			return failed("correct it: "+failure.Set(c, key, "redis://localhost:6379/0"), err)
		}
		stop := context.AfterFunc(ctx, func() { _ = client.Close() }) // the client ignores the context while it connects
		defer stop()
		defer func() { _ = client.Close() }()
		trip, skew, err := clock(ctx, client)
		if err != nil {
			err = cmp.Or(redis.Diagnose(ctx, c.Cache[alias].URL.Reveal(), err), err)
			return failed(selection.RepairCache(c, alias, err), err)
		}
		return clockFinding(trip, skew)
	}
}

// clockFinding returns the finding about a server whose round trip and clock skew
// are known.
func clockFinding(trip, skew time.Duration) Finding {
	f := passed("answers in %v; its clock is %s", trip.Round(10*time.Microsecond), skewText(skew))
	switch {
	case skew.Abs() > maxSkew:
		f.Verdict, f.Action = Warn, "set the clocks: fences come from the server's, and a successor's must not be behind"
	case trip > maxRoundTrip:
		f.Verdict, f.Action = Warn, "use a redis that is nearer: every lock takes a round trip"
	}
	return f
}

// skewText describes the skew of a server's clock.
func skewText(skew time.Duration) string {
	switch d := skew.Abs().Round(time.Millisecond); {
	case d == 0:
		return "the same"
	case skew > 0:
		return fmt.Sprintf("%v ahead", d)
	default:
		return fmt.Sprintf("%v behind", d)
	}
}

// clock reads a server's time five times, and uses the fastest answer. The
// error of the skew is at most half of that round trip.
func clock(ctx context.Context, client goredis.UniversalClient) (trip, skew time.Duration, err error) {
	for range 5 {
		sent := time.Now()
		then, err := client.Time(ctx).Result()
		if err != nil {
			return 0, 0, err
		}
		if took := time.Since(sent); trip == 0 || took < trip {
			trip, skew = took, then.Sub(sent.Add(took/2))
		}
	}
	if skew.Abs() <= trip/2 {
		skew = 0
	}
	return trip, skew, nil
}

// natsCheck returns a check that reads the greeting of a NATS server. One server of a
// list is enough, as for the client. All are called at once: one that does not answer
// takes no time from the others.
func natsCheck(c *settings.Config) func(context.Context) Finding {
	return func(ctx context.Context) Finding {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		servers := strings.Split(c.NATS.URL.Reveal(), ",")
		versions, errs := make([]string, len(servers)), make([]error, len(servers))
		var calls sync.WaitGroup
		for i, server := range servers {
			calls.Go(func() {
				if versions[i], errs[i] = natsVersion(ctx, strings.TrimSpace(server), c.NATS.TLS.HandshakeFirst); errs[i] == nil {
					cancel()
				}
			})
		}
		calls.Wait()
		if i := slices.Index(errs, nil); i >= 0 {
			return passed("NATS %s answers", versions[i])
		}
		why := strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; ")
		return failed("start it, or point elsewhere: "+failure.Set(c, "nats.url", "nats://localhost:4222"), errors.New(why))
	}
}

// maxGreeting bounds the greeting, in bytes: the server may not be a NATS server.
const maxGreeting = 1 << 20

// natsVersion returns the version in the greeting of a NATS server, which comes after
// the handshake of TLS if secure is true.
func natsVersion(ctx context.Context, server string, secure bool) (string, error) {
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	u, err := url.Parse(server)
	if err != nil || !slices.Contains([]string{"nats", "tls"}, u.Scheme) {
		return "", errors.New("doctor checks only addresses with nats:// and tls://")
	}
	port := u.Port()
	if port == "" {
		port = "4222"
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })() // fails on a closed connection, as does the read below
	greeting := io.Reader(conn)
	if secure {
		greeting = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nothing is sent; the driver verifies it
	}
	line, err := bufio.NewReader(io.LimitReader(greeting, maxGreeting)).ReadString('\n')
	text, isInfo := strings.CutPrefix(line, "INFO ")
	switch {
	case err != nil:
		return "", fmt.Errorf("%s does not speak NATS: %w", conn.RemoteAddr(), err)
	case !isInfo:
		return "", fmt.Errorf("%s does not speak NATS", conn.RemoteAddr())
	}
	var info struct{ Version string }
	err = json.Unmarshal([]byte(text), &info)
	return info.Version, err
}

// driverChecks returns checks that open each selected driver that has a server, and
// close it again.
func driverChecks(made *plan.Plan) (checks []check) {
	var backends selection.Backends
	quiet := slog.New(slog.DiscardHandler)
	c := *made.Config
	c.Boot.WaitFor = 0
	if made.Lock.Chosen == "redis" {
		checks = append(checks, check{"locks in redis", func(ctx context.Context) Finding {
			opened, err := backends.OpenLock(ctx, &c, made.Lock, quiet)
			if err != nil {
				return failureFinding("", failure.Of(err))
			}
			info := opened.Info()
			f := passed("the driver opens, with the engine %s", info.Engine)
			return warned(f, slices.Concat(info.Warnings, lacking(info.Lacks))).withCleanup(opened.Close(ctx))
		}})
	}
	if made.Limit.Chosen == "redis" && !made.Limit.Follows() {
		checks = append(checks, check{"limits in redis", func(ctx context.Context) Finding {
			opened, err := backends.OpenLimit(ctx, &c, made.Limit, quiet)
			if err != nil {
				return failureFinding("", failure.Of(err))
			}
			return warned(passed("the driver opens"), opened.Info().Warnings).withCleanup(opened.Close(ctx))
		}})
	}
	if made.Bus.Chosen == "nats" {
		checks = append(checks, check{"messages through NATS", func(ctx context.Context) Finding {
			opened, err := backends.OpenBus(ctx, &c, made.Bus, c.Name, quiet)
			if err != nil {
				return failureFinding("", failure.Of(err))
			}
			return warned(passed("the driver opens"), opened.Info().Warnings).withCleanup(opened.Close(ctx))
		}})
	}
	return checks
}

// warned returns f, or the finding about what weakens a driver that opens.
func warned(f Finding, weak []string) Finding {
	if len(weak) > 0 {
		return Finding{Verdict: Warn, Text: strings.Join(weak, "; ")}
	}
	return f
}

// lacking returns a sentence for each guarantee that a driver does not give.
func lacking(lacks []driver.Lack) (all []string) {
	for _, l := range lacks {
		all = append(all, "without "+l.Rule+": "+l.Why)
	}
	return all
}
