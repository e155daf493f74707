package selection

import (
	"cmp"
	"slices"
	"strings"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/notation"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/internal/settings"
)

// The addresses that panels give as examples.
const (
	exampleRedis     = "redis://localhost:6379/0"
	exampleRediss    = "rediss://server.example:6379/0"
	exampleSentinels = "redis-sentinel://host1,host2,host3/master"
	exampleNATS      = "nats://localhost:4222"
	exampleNATSTLS   = "tls://server.example:4222"
)

// server describes a server that cannot be used, for its panel.
type server struct {
	name     string // "the Redis that is configured for locks"
	key      string // the key of its address
	example  string // a value of key
	secure   string // a value of key with TLS
	login    string // the action that corrects the credentials
	trust    string // the action that corrects the certificates
	clients  string // the action for a server that wants a certificate of this program; "" for trust
	program  string // the program to start
	decision string // the key that decided about the driver; "" if key did
	without  string // the action that does without the server; "" if the program needs it

	handshakeFirst bool // the program begins with TLS, before the greeting of the server

	refused, unavailable string // the codes
}

// lockServer describes the Redis of the locks.
func lockServer(c *settings.Config, d plan.Decision) server {
	s := redisServer(c, d.Cache)
	s.name, s.refused, s.unavailable = "the Redis that is configured for locks", "lock.driver_refused", "lock.driver_unavailable"
	s.without = failure.Set(c, "lock.driver", "memory")
	if d.Key != s.key {
		s.decision = d.Key
	} else if v, _ := c.Value(s.key); len(c.Caches()) == 1 && len(v.Shadows) == 0 {
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
		secure: cmp.Or(notation.Example(c.Cache[alias].URL.Scheme()), exampleRediss), trust: "the option tls_ca=/path/of/ca.pem in " + key + ", or the authorities of the system",
		clients: "the options tls_cert=/path/of/cert.pem and tls_key=/path/of/key.pem in " + key + ", or tls-auth-clients no in redis.conf",
		login:   failure.Set(c, key, "redis://user:password@host:6379/0"), refused: "cache.refused", unavailable: "cache.unavailable",
	}
}

// busServer describes the NATS server of the messages.
func busServer(c *settings.Config, d plan.Decision) server {
	s := server{
		name: "the NATS server that is configured for messages", key: "nats.url", example: exampleNATS, program: "nats-server",
		login:  "nats.user and nats.password, nats.token, nats.nkey_file or nats.creds_file",
		secure: exampleNATSTLS, trust: "nats.tls.ca for the server's authority, nats.tls.cert and nats.tls.key for a certificate of this program",
		refused: "bus.driver_refused", unavailable: "bus.driver_unavailable",
		without:        failure.Set(c, "bus.driver", "memory") + ": messages then end at this process",
		handshakeFirst: c.NATS.TLS.HandshakeFirst,
	}
	if c.NATS.TLS.Cert != "" { // a server with verify_and_map takes the user from it
		s.login += ", or nats.tls.cert"
	}
	if len(mask.Credentials(c.NATS.URL.Reveal())) > 0 { // other credentials beside them are refused
		s.login = failure.Set(c, s.key, "nats://user:password@host:4222")
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
	kind := refusal.Of(cause)
	switch {
	case kind == refusal.Encryption && s.handshakeFirst:
		f.Text = sentence(s.name) + " does not begin with TLS."
	case kind != refusal.None:
		f.Text = refused(kind, s.name, cause)
	case a.permanent:
		f.Text = "Cannot open " + s.name + " with these settings."
		f.Actions = failure.Actions("Correct the address", failure.Set(c, s.key, s.fitting(cause)))
		if strings.Contains(cause.Error(), "key template ") {
			f.Facts = append(f.Facts, failure.Setting(c, "lock.redis.key"))
			f.Actions = failure.Actions("Correct the template", failure.Set(c, "lock.redis.key", redis.DefaultKey),
				"Or leave the Cluster", failure.SetOther(c, s.key, s.example))
		}
		if strings.Contains(cause.Error(), "options tls_") {
			f.Actions = failure.Actions("Correct the options", "tls_ca, tls_cert and tls_key in "+s.key+" are files in PEM, for a URL with TLS such as "+s.secure)
		}
		if key := fileOf(c, cause); key != "" {
			f.Facts = append(f.Facts, failure.Setting(c, key))
			f.Actions = failure.Actions("Correct the file", failure.Set(c, key, "/path/of/the/file"))
		}
		return f
	default:
		f.Code, f.Exit = s.unavailable, failure.ExitUnavailable
		f.Text = "Cannot use " + s.name + "."
		f.Facts = append(f.Facts, a.tried)
	}
	actions := s.repair(c, cause)
	if kind == refusal.Login {
		actions = append(actions, "Grant the permissions", "the cause names the missing one")
	}
	if f.Code == s.unavailable {
		actions = append(actions, "Use another server", failure.SetOther(c, s.key, s.example), "Wait longer", failure.Set(c, "boot.wait_for", "60s"))
	}
	if s.without != "" {
		actions = append(actions, "Continue without it", s.without)
	}
	f.Actions = failure.Actions(actions...)
	return f
}

// fileOf returns the key of the file that the cause names, or "".
func fileOf(c *settings.Config, cause error) string {
	for _, key := range []string{"nats.nkey_file", "nats.creds_file", "nats.tls.ca", "nats.tls.cert", "nats.tls.key"} {
		if v, _ := c.Value(key); v.Text != "" && strings.Contains(cause.Error(), " "+v.Text+":") {
			return key
		}
	}
	return ""
}

// refused describes a refusal by the server of that name.
func refused(kind refusal.Kind, name string, cause error) string {
	switch kind {
	case refusal.Certificate:
		return "A certificate is refused on the connection to " + name + "."
	case refusal.Encryption:
		return sentence(name) + " does not use TLS."
	case refusal.Database:
		return sentence(name) + " does not have that database."
	case refusal.Disabled:
		return sentence(name) + " has disabled a command that this program needs."
	case refusal.Foreign:
		return sentence(cmp.Or(refusal.Server(cause), "another kind of server")) + " answers at the address of " + name + "."
	}
	return sentence(name) + " refuses the credentials or permissions of this program."
}

// repair returns the actions that end the cause, as pairs of a name and what to
// do.
func (s server) repair(c *settings.Config, cause error) []string {
	text := cause.Error()
	switch kind := refusal.Of(cause); {
	case kind == refusal.Login:
		return []string{"Correct the credentials", s.login}
	case kind == refusal.Certificate && s.clients != "" && refusal.OfClient(cause):
		return []string{"Set the certificate of this program", s.clients}
	case kind == refusal.Certificate:
		return []string{"Correct the certificates", s.trust, "Use a name of its certificate", failure.SetOther(c, s.key, s.secure)}
	case kind == refusal.Encryption && s.handshakeFirst:
		return []string{"Wait for its greeting", failure.Unset(c, "nats.tls.handshake_first"), "Use a server with handshake_first", failure.SetOther(c, s.key, s.secure)}
	case kind == refusal.Encryption:
		return []string{"Connect without TLS", failure.SetOther(c, s.key, s.example), "Use its port for TLS", failure.SetOther(c, s.key, s.secure)}
	case kind == refusal.Database:
		return []string{"Use a database of it", "the number 0 in " + s.key + ", which every server has", "Raise their number", "databases in redis.conf"}
	case kind == refusal.Disabled:
		return []string{"Enable the commands", "the cause names one; remove its rename-command from redis.conf, or use Redis 6.2 or later"}
	case kind == refusal.Foreign || strings.Contains(text, "use the scheme "):
		return []string{"Correct the address", failure.SetOther(c, s.key, s.fitting(cause))}
	case strings.Contains(text, "NOREPLICAS "):
		return []string{"Start its replicas", "the server takes no writes without min-replicas-to-write of them"}
	case strings.Contains(text, "OOM "):
		return []string{"Give it more memory", "maxmemory in redis.conf"}
	case strings.Contains(text, "MISCONF "):
		return []string{"Repair its persistence", "the server takes no writes while it cannot save; check the free space and dir in redis.conf"}
	case strings.Contains(text, "no such host"):
		return []string{"Correct the host name", "the DNS of this machine does not know it"}
	case strings.Contains(text, "a Sentinel names it as the master"):
		return []string{"Repair the Sentinels", "ask each for SENTINEL GET-MASTER-ADDR-BY-NAME; stop those that name the replica"}
	case strings.Contains(text, "replica"):
		return []string{"Use its master", failure.Set(c, s.key, exampleSentinels)}
	case strings.Contains(text, "connection refused"):
		return []string{"Start it", s.program + ", or the service at that address"}
	}
	return []string{"Repair it", "the cause describes the problem"}
}

// fitting returns an address of the kind that the cause recommends.
func (s server) fitting(cause error) string {
	_, named, _ := strings.Cut(cause.Error(), "use the scheme ")
	if scheme, _, ok := strings.Cut(named, "://"); ok {
		return cmp.Or(notation.Example(scheme), s.example)
	}
	return s.example
}

// RepairCache returns the action for the Redis of a cache that cannot be used,
// derived from the cause.
func RepairCache(c *settings.Config, alias string, cause error) string {
	var all []string
	for pair := range slices.Chunk(redisServer(c, alias).repair(c, cause), 2) {
		all = append(all, strings.Join(pair, ": "))
	}
	return strings.Join(all, "; or ")
}
