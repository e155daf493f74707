package redis

import (
	"cmp"
	"fmt"
	"reflect"

	goredis "github.com/redis/go-redis/v9"
)

// Config selects the Redis that keeps the locks. URL or Client is required.
type Config struct {
	// URL is the server:
	//
	//	redis://user:password@host:6379/0          one server; rediss:// with TLS
	//	redis-sentinel://h1:26379,h2:26379/master  the master of a Sentinel set, and /0 for a database
	//	redis-cluster://h1:6379,h2:6379            a Cluster
	//
	// rediss-sentinel and rediss-cluster use TLS. Options of go-redis may
	// follow, such as ?read_timeout=1s&client_name=web; the sentinels' own user
	// is ?sentinel_username=u&sentinel_password=p. Files in PEM are tls_ca, the
	// authorities in place of the system's, and tls_cert with tls_key, the
	// certificate of this process; each connection reads them again.
	URL string
	// Client is used instead of URL. The caller keeps it: Close leaves it
	// open. A client that retries by itself (MaxRetries other than -1)
	// works, but costs an entry per release and per refused attempt, and for
	// the latter another call. Limits then lack W3, see [Info.Lacks]. Its timeouts of
	// reads and writes apply; it must have both.
	Client goredis.UniversalClient
	// Key is the template of the keys in Redis. Default DefaultKey. "%s"
	// alone locks the keys that other users of Redis would lock by that
	// name; on a Cluster it must contain a hash tag.
	Key string
	// Namespace separates environments on one server: it is part of all
	// keys. At most 64 letters, digits, '.', '_' and '-'. Default none.
	Namespace string
	edit      func(source string) string // changes each script; for tests of the suite
	// Engine selects how callers wait. Default EngineQueue.
	Engine string
}

// The engines.
const (
	// EngineQueue queues in order; pushes wake the waiters.
	EngineQueue = "queue"
	// EngineRedislock polls, with github.com/bsm/redislock: for a Redis
	// without pub/sub. [Info.Lacks] lists the rules that it does not keep.
	EngineRedislock = "redislock"
)

func (c Config) withDefaults() Config {
	c.Key = cmp.Or(c.Key, DefaultKey)
	c.Engine = cmp.Or(c.Engine, EngineQueue)
	return c
}

func (c Config) check() error {
	switch {
	case c.Engine != EngineQueue && c.Engine != EngineRedislock:
		return fmt.Errorf("engine %q: want %q or %q", c.Engine, EngineQueue, EngineRedislock)
	case c.Client != nil && reflect.ValueOf(c.Client).Kind() == reflect.Pointer && reflect.ValueOf(c.Client).IsNil():
		return fmt.Errorf("no server: Config.Client is a nil %T", c.Client)
	case c.URL == "" && c.Client == nil:
		return fmt.Errorf("no server: set Config.URL, such as redis://localhost:6379, or Config.Client")
	case c.URL != "" && c.Client != nil:
		return fmt.Errorf("two servers: set Config.URL or Config.Client, not both")
	}
	return nil
}
