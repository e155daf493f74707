package selection

import (
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
)

// The addresses that panels give as examples.
const (
	exampleRedis = "redis://localhost:6379/0"
	exampleNATS  = "nats://localhost:4222"
)

// server describes a server that cannot be used, for its panel.
type server struct {
	name     string // "the Redis that is configured for locks"
	key      string // the key of its address
	example  string // a value of key
	login    string // the action that corrects the credentials
	program  string // the program to start
	decision string // the key that decided about the driver; "" if key did
	without  string // the action that does without the server; "" if the program needs it

	refused, unavailable string // the codes
}

// lockServer describes the Redis of the locks.
func lockServer(c *settings.Config, d plan.Decision) server {
	s := redisServer(c, d.Cache)
	s.name, s.refused, s.unavailable = "the Redis that is configured for locks", "lock.driver_refused", "lock.driver_unavailable"
	s.without = failure.Set(c, "lock.driver", "memory")
	if d.Key != s.key {
		s.decision = d.Key
	} else if v, _ := failure.ValueOf(c, s.key); len(c.Caches()) == 1 && len(v.Shadows) == 0 {
		s.without = failure.Unset(c, s.key) // no other cache and no weaker origin would select redis again
	}
	s.without += ": locks then end at this process"
	return s
}

// redisServer describes the Redis of a cache.
func redisServer(c *settings.Config, alias string) server {
	key := urlKey(alias)
	return server{
		name: "the Redis of the cache " + alias, key: key, example: exampleRedis, program: "redis-server",
		login: failure.Set(c, key, "redis://user:password@host:6379/0"), refused: "cache.refused", unavailable: "cache.unavailable",
	}
}

// busServer describes the NATS server of the messages.
func busServer(c *settings.Config, d plan.Decision) server {
	s := server{
		name: "the NATS server that is configured for messages", key: "nats.url", example: exampleNATS, program: "nats-server",
		login:   "nats.user and nats.password, nats.token, nats.nkey_file or nats.creds_file",
		refused: "bus.driver_refused", unavailable: "bus.driver_unavailable",
		without: failure.Set(c, "bus.driver", "memory") + ": messages then end at this process",
	}
	if d.Key != s.key {
		s.decision = d.Key
	}
	return s
}

// urlKey returns the key of the address of a cache.
func urlKey(alias string) string { return "cache." + alias + ".url" }

// failure returns the Failure for a server that could not be opened.
func (s server) failure(c *settings.Config, a attempts, cause error) error {
	f := &failure.Failure{Code: s.refused, Exit: failure.ExitConfig, Cause: cause, Facts: []failure.Fact{failure.Setting(c, s.key)}}
	if s.decision != "" {
		f.Facts = append(f.Facts, failure.Setting(c, s.decision))
	}
	var actions []string
	switch {
	case denied(cause):
		f.Text = sentence(s.name) + " refuses the credentials or permissions of this program."
		actions = []string{"Correct the credentials", s.login, "Grant the permissions", "the cause names the missing one"}
	case a.permanent:
		f.Text = "Cannot open " + s.name + " with these settings."
		f.Actions = failure.Actions("Correct the address", failure.Set(c, s.key, s.example))
		return f
	default:
		f.Code, f.Exit = s.unavailable, failure.ExitUnavailable
		f.Text = "Cannot use " + s.name + "."
		f.Facts = append(f.Facts, a.tried)
		actions = append(s.repair(c, cause), "Use another server", failure.SetOther(c, s.key, s.example), "Wait longer", failure.Set(c, "boot.wait_for", "60s"))
	}
	if s.without != "" {
		actions = append(actions, "Continue without it", s.without)
	}
	f.Actions = failure.Actions(actions...)
	return f
}

// repair returns an action for the server itself, derived from the cause: its
// name, and what to do.
func (s server) repair(c *settings.Config, cause error) []string {
	text := cause.Error()
	switch {
	case denied(cause):
		return []string{"Correct the credentials", s.login}
	case strings.Contains(text, "replica"):
		return []string{"Use its master", failure.Set(c, s.key, "redis-sentinel://host1,host2,host3/master")}
	case strings.Contains(text, "connection refused"):
		return []string{"Start it", s.program + ", or the service at that address"}
	}
	return []string{"Repair it", "the cause describes the problem"}
}

// RepairCache returns the action for the Redis of a cache that cannot be used,
// derived from the cause.
func RepairCache(c *settings.Config, alias string, cause error) string {
	return strings.Join(redisServer(c, alias).repair(c, cause), ": ")
}

// denied reports whether a server refuses the credentials or the permissions of
// this process. A retry would fail in the same way (L21).
func denied(err error) bool {
	text := err.Error()
	return slices.ContainsFunc(denials(), func(denial string) bool { return strings.Contains(text, denial) })
}

// denials returns error texts of redis, of NATS and of their clients. Neither
// client has typed errors for all of them.
func denials() []string {
	return []string{
		"WRONGPASS ", "NOAUTH ", "NOPERM ", "ERR invalid password", "ERR AUTH ", "ERR Client sent AUTH",
		"nats: Authorization Violation", "nats: authorization violation", "nats: authentication expired", "nats: authentication revoked",
		"nats: account authentication expired", "nats: user authentication expired", "nats: user authentication revoked", "nats: permissions violation",
	}
}
