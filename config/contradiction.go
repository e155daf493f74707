package config

import "strings"

// contradictions are the mistakes that a type or a tag cannot express.
func (c *Config) contradictions() (p Problems) {
	for _, find := range []func() Problems{c.badTemplate, c.missingCache} {
		p = append(p, find()...)
	}
	return p
}

func (c *Config) badTemplate() Problems {
	template := c.Lock.Redis.Key
	if strings.Count(template, "%s") == 1 && strings.Count(template, "%") == 1 {
		return nil
	}
	return Problems{{
		Code: "config.invalid", Key: "lock.redis.key", Origin: c.Origin("lock.redis.key"),
		Text: quote(template) + " has to contain %s once, where the lock's key goes, and no other %",
	}}
}

func (c *Config) missingCache() Problems {
	if _, ok := c.Cache[c.Lock.Cache]; ok || c.Lock.Cache == "" {
		return nil
	}
	return Problems{{
		Code: "config.unknown_cache", Key: "lock.cache", Origin: c.Origin("lock.cache"),
		Text: "there is no cache called " + quote(c.Lock.Cache), Hint: c.cacheHint(),
	}}
}

func (c *Config) cacheHint() string {
	if len(c.Cache) == 0 {
		return "set " + EnvName("cache."+c.Lock.Cache+".url")
	}
	return "configured: " + strings.Join(c.Caches(), ", ")
}
