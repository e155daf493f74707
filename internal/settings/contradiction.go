package settings

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/mask"
)

// contradictions returns the mistakes that a type or a tag cannot express. The
// values of illegal keys are unknown.
func (c *Config) contradictions(illegal map[string]bool) (p Problems) {
	for _, find := range []func() Problems{c.emptyEnv, c.badTemplate, c.badSocket, c.shortHangTimeout, c.missingCache, c.severalCredentials, c.missingPartner} {
		p = append(p, find()...)
	}
	return append(p, c.addressTwice(illegal)...)
}

// emptyEnv finds an env that was set to an empty text.
func (c *Config) emptyEnv() Problems {
	if c.Env != "" {
		return nil
	}
	return Problems{{Code: "config.invalid", Key: "env", Origin: c.Origin("env"), Text: "is empty", Hint: "write dev, test, production or a name of your own"}}
}

// badTemplate finds a lock.redis.key that does not contain %s once.
func (c *Config) badTemplate() Problems {
	template := c.Lock.Redis.Key
	if strings.Count(template, "%s") == 1 && strings.Count(template, "%") == 1 {
		return nil
	}
	return Problems{{
		Code: "config.invalid", Key: "lock.redis.key", Origin: c.Origin("lock.redis.key"),
		Text: mask.Quote(template) + " must contain %s once, for the key of the lock, and no other %",
	}}
}

// badSocket finds a cluster.socket that is neither auto nor an absolute path.
func (c *Config) badSocket() Problems {
	const key = "cluster.socket"
	at := c.Cluster.Socket
	if at == "" || at == "auto" || path.IsAbs(at) && !strings.Contains(at, "\x00") {
		return nil
	}
	p := Problem{
		Code: "config.invalid", Key: key, Origin: c.Origin(key),
		Text: mask.Quote(at) + " is not auto or an absolute path", Hint: "set it to auto, or to a path such as /run/shop/cluster.sock",
	}
	if strings.EqualFold(strings.TrimSpace(at), "auto") {
		p.Hint = "did you mean auto?"
	}
	return Problems{p}
}

// leastHangTimeout is longer than the pauses of a healthy process on a loaded
// machine.
const leastHangTimeout = time.Second

// shortHangTimeout finds a cluster.hang_timeout below leastHangTimeout.
func (c *Config) shortHangTimeout() Problems {
	const key = "cluster.hang_timeout"
	d := c.Cluster.HangTimeout
	if d <= 0 || d >= leastHangTimeout {
		return nil
	}
	return Problems{{
		Code: "config.invalid", Key: key, Origin: c.Origin(key),
		Text: fmt.Sprintf("%v is below %v: a healthy worker may need longer to answer", d, leastHangTimeout), Hint: "set it to 0s to turn it off",
	}}
}

// missingCache finds aliases of caches that are not configured.
func (c *Config) missingCache() (p Problems) {
	for _, of := range []struct{ key, alias string }{{"lock.cache", c.Lock.Cache}, {"limit.cache", c.Limit.Cache}} {
		if _, ok := c.Cache[of.alias]; ok || of.alias == "" {
			continue
		}
		p = append(p, Problem{
			Code: "config.unknown_cache", Key: of.key, Origin: c.Origin(of.key),
			Text: "unknown cache " + mask.Quote(of.alias), Hint: c.cacheHint(of.alias),
		})
	}
	return p
}

func (c *Config) cacheHint(alias string) string {
	switch {
	case len(c.Cache) == 0 && ValidName(alias):
		return "set " + EnvName("cache."+alias+".url")
	case len(c.Cache) == 0:
		return "an alias is a lower-case word, such as main"
	}
	return "configured: " + strings.Join(c.Caches(), ", ")
}

// severalCredentials finds more than one kind of NATS credentials.
func (c *Config) severalCredentials() Problems {
	var ways []string
	if len(mask.Credentials(c.NATS.URL.Reveal())) > 0 { // the client would prefer them to nats.user and nats.token
		ways = append(ways, "nats.url")
	}
	for _, key := range []string{"nats.user", "nats.token", "nats.nkey_file", "nats.creds_file"} {
		if c.values[key].Text != "" {
			ways = append(ways, key)
		}
	}
	if len(ways) < 2 {
		return nil
	}
	first, second := ways[0], ways[1]
	return Problems{{
		Code: "config.contradiction", Key: second, Origin: c.Origin(second),
		Text: fmt.Sprintf("%s (%v) sets credentials for NATS, too", first, c.Origin(first)), Hint: "keep one of them",
	}}
}

// missingPartner finds keys that have no effect without another.
func (c *Config) missingPartner() (p Problems) {
	pairs := map[string]string{"nats.password": "nats.user", "nats.tls.cert": "nats.tls.key", "nats.tls.key": "nats.tls.cert"}
	for _, app := range c.schema.apps {
		cert, key := "apps."+app+".tls.cert", "apps."+app+".tls.key"
		pairs[cert], pairs[key] = key, cert
	}
	for key, with := range pairs {
		if c.values[key].Text != "" && c.values[with].Text == "" {
			p = append(p, Problem{
				Code: "config.contradiction", Key: key, Origin: c.Origin(key),
				Text: "has no effect without " + with, Hint: "set " + EnvName(with),
			})
		}
	}
	return p
}
