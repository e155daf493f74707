// Package config turns the environment of a process into one checked Config,
// whose values know where they came from.
//
// One schema, the key tags of the structs in this package and of an
// application's own sections, decides everything: which keys exist, what the
// variable of a key is called (lock.redis.key is MEGA_LOCK_REDIS_KEY), its
// default, and what is a legal value. Loading is strict and complete: a
// variable that begins with MEGA_ and belongs to no key, a number without its
// unit and a malformed URL are errors, and all of them are reported at once.
package config

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// Config is the configuration of a process. It does not change once loaded.
type Config struct {
	Env      string           `key:"env" doc:"dev, test, production or a name of your own"`
	Lock     Lock             `key:"lock"`
	Cache    map[string]Cache `key:"cache"`
	Apps     map[string]App   `key:"apps"`
	Ops      Ops              `key:"ops"`
	Boot     Boot             `key:"boot"`
	Shutdown Shutdown         `key:"shutdown"`
	Log      Log              `key:"log"`

	values   map[string]Value
	sections map[string]reflect.Value
}

// Lock configures the locks of the process.
type Lock struct {
	Driver  string        `key:"driver" default:"auto" enum:"auto|redis|cluster|memory" doc:"what keeps the locks"`
	TTL     time.Duration `key:"ttl" default:"10s" min:"100ms" max:"24h" doc:"how long others wait after a crash"`
	Wait    time.Duration `key:"wait" default:"5s" min:"0s" doc:"how long a call waits for a busy lock"`
	FIFO    bool          `key:"fifo" default:"false" doc:"strict order across processes"`
	Cache   string        `key:"cache" doc:"the cache that keeps the locks, where there are several"`
	Require string        `key:"require" enum:"process|node|fleet" doc:"how far exclusion has to reach"`
	Redis   LockRedis     `key:"redis"`
}

// LockRedis configures the redis driver of locks.
type LockRedis struct {
	Engine string `key:"engine" default:"queue" enum:"queue|redislock" doc:"how locks are kept in redis"`
	Key    string `key:"key" default:"mega:{%s}" doc:"template of the names in redis"`
}

// Cache is a redis that the process may use.
type Cache struct {
	URL URL `key:"url" schemes:"redis|rediss|redis-sentinel|rediss-sentinel|redis-cluster|rediss-cluster" doc:"where it is"`
}

// App configures one app of the process.
type App struct {
	Addr Addr `key:"addr" doc:"where the app listens"`
}

// Ops configures the listener for probes.
type Ops struct {
	Addr Addr `key:"addr" default:"127.0.0.1:9090" doc:"where /livez and /readyz are served"`
}

// Boot configures how the process starts.
type Boot struct {
	WaitFor time.Duration `key:"wait_for" default:"10s" min:"0s" doc:"how long to wait for a server that does not answer"`
}

// Shutdown configures how the process ends.
type Shutdown struct {
	Timeout time.Duration `key:"timeout" default:"30s" min:"0s" doc:"how long requests in flight may take"`
	Delay   time.Duration `key:"delay" default:"0s" min:"0s" doc:"how long to keep serving after readiness is gone"`
}

// Log configures what the process tells.
type Log struct {
	Level  string `key:"level" default:"info" enum:"debug|info|warn|error" doc:"the least level that is written"`
	Format string `key:"format" default:"auto" enum:"auto|text|json" doc:"text on a terminal and in dev, else json, unless set"`
}

// Section is a part of the schema that an application adds: the struct Type,
// with key tags, under Name.
type Section struct {
	Name string
	Type reflect.Type
	Site string // file:line of its declaration, for error texts
}

// Source is what a Config is loaded from.
type Source struct {
	Environ  []string // as from os.Environ
	Env      string   // what env is where MEGA_ENV is not set; default production
	Apps     []string // the apps of the program, in order
	Sections []Section
}

// Load returns the configuration that s describes, or [Problems] with all that
// is wrong with it.
func Load(s Source) (*Config, error) {
	schema, problems := newSchema(s)
	environ, more := schema.readEnviron(s.Environ)
	problems = append(problems, more...)

	d := decoder{schema: schema, values: merge(schema.defaults(s), environ)}
	c := &Config{values: d.values, sections: map[string]reflect.Value{}}
	d.decode(reflect.ValueOf(c).Elem(), "")
	for _, sec := range schema.sections {
		v := reflect.New(sec.Type).Elem()
		d.decode(v, sec.Name)
		c.sections[sec.Name] = v
	}
	problems = append(problems, d.problems...)
	problems = append(problems, c.contradictions()...)
	if len(problems) > 0 {
		slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.subject(), b.subject()) })
		return nil, problems
	}
	return c, nil
}

// contradictions are the mistakes that a type or a tag cannot express.
func (c *Config) contradictions() (p Problems) {
	template := c.Lock.Redis.Key
	if strings.Count(template, "%s") != 1 || strings.Count(template, "%") != 1 {
		p = append(p, Problem{
			Code: "config.invalid", Key: "lock.redis.key", Origin: c.Origin("lock.redis.key"),
			Text: quote(template) + " has to contain %s once, where the lock's key goes, and no other %",
		})
	}
	if _, ok := c.Cache[c.Lock.Cache]; !ok && c.Lock.Cache != "" {
		p = append(p, Problem{
			Code: "config.unknown_cache", Key: "lock.cache", Origin: c.Origin("lock.cache"),
			Text: "there is no cache called " + quote(c.Lock.Cache), Hint: c.cacheHint(),
		})
	}
	return p
}

func (c *Config) cacheHint() string {
	if len(c.Cache) == 0 {
		return "set " + EnvName("cache."+c.Lock.Cache+".url")
	}
	return "configured: " + strings.Join(c.Caches(), ", ")
}

// Caches returns the aliases of the configured caches, sorted.
func (c *Config) Caches() []string {
	var aliases []string
	for alias := range c.Cache {
		aliases = append(aliases, alias)
	}
	slices.Sort(aliases)
	return aliases
}

// Origin says where the value of key came from.
func (c *Config) Origin(key string) Origin { return c.values[key].Origin }

// Section returns the decoded section of that name, a value of its Type.
func (c *Config) Section(name string) (any, bool) {
	v, ok := c.sections[name]
	if !ok {
		return nil, false
	}
	return v.Interface(), true
}

// Values returns every key that has a value, sorted, with secrets masked.
func (c *Config) Values() []Value {
	var all []Value
	for _, v := range c.values {
		v.Text = v.masked()
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b Value) int { return strings.Compare(a.Key, b.Key) })
	return all
}
