package selection

import (
	"testing"

	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
)

// pinnedBy is what is decided from these keys.
func pinnedBy(t *testing.T, worker bool, environ ...string) (*settings.Config, plan.Decisions) {
	t.Helper()
	c, err := settings.Load(settings.Source{Environ: environ, Env: "production", Name: "shop", Apps: []string{"main"}})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := Lock(c, Surroundings{Worker: worker})
	if err != nil {
		t.Fatal(err)
	}
	bus, err := Bus(c, Surroundings{Worker: worker})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := Limit(c, Surroundings{Worker: worker}, lock)
	if err != nil {
		t.Fatal(err)
	}
	return c, plan.Decisions{Lock: lock, Bus: bus, Limit: limit}
}

func TestWorkerIsHeldToWhereLocksAndMessagesWere(t *testing.T) {
	const redis, nats = "MEGA_CACHE_MAIN_URL=redis://:old@cache:6379/0", "MEGA_NATS_URL=nats://queue:4222"
	for name, c := range map[string]struct {
		was, is   []string
		lock, bus string // the key by which they differ
	}{
		"nothing":                    {},
		"what places none":           {was: []string{redis}, is: []string{redis, "MEGA_LOCK_TTL=20s", "MEGA_LOG_LEVEL=debug"}},
		"a password":                 {was: []string{redis}, is: []string{"MEGA_CACHE_MAIN_URL=redis://:new@cache:6379/0"}},
		"a token":                    {was: []string{"MEGA_NATS_URL=nats://old@queue:4222"}, is: []string{"MEGA_NATS_URL=nats://new@queue:4222"}},
		"the driver":                 {is: []string{"MEGA_LOCK_DRIVER=memory"}, lock: "lock.driver"},
		"the driver, back":           {was: []string{"MEGA_LOCK_DRIVER=memory"}, lock: "lock.driver"},
		"a cache appears":            {is: []string{redis}, lock: "cache.main.url"},
		"a cache disappears":         {was: []string{redis}, lock: "cache.main.url"},
		"another cache":              {was: []string{redis}, is: []string{"MEGA_CACHE_MAIN_URL=redis://:old@other:6379/0"}, lock: "cache.main.url"},
		"another database":           {was: []string{redis}, is: []string{"MEGA_CACHE_MAIN_URL=redis://:old@cache:6379/1"}, lock: "cache.main.url"},
		"a database in the query":    {was: []string{redis + "?db=1"}, is: []string{redis + "?db=2"}, lock: "cache.main.url"},
		"the namespace":              {was: []string{redis}, is: []string{redis, "MEGA_LOCK_NAMESPACE=staging"}, lock: "lock.namespace"},
		"the namespace of a cluster": {is: []string{"MEGA_LOCK_NAMESPACE=staging"}, lock: "lock.namespace"},
		"the names in redis":         {was: []string{redis}, is: []string{redis, "MEGA_LOCK_REDIS_KEY=shop:{%s}"}, lock: "lock.redis.key"},
		"the name":                   {is: []string{"MEGA_NAME=store"}, lock: "name"},
		"the name beside a redis":    {was: []string{redis}, is: []string{redis, "MEGA_NAME=store"}, lock: "name"},
		"the name beside memory":     {was: []string{"MEGA_LOCK_DRIVER=memory"}, is: []string{"MEGA_LOCK_DRIVER=memory", "MEGA_NAME=store"}},
		"the engine":                 {was: []string{redis}, is: []string{redis, "MEGA_LOCK_REDIS_ENGINE=redislock"}, lock: "lock.redis.engine"},
		"a cache beside":             {was: []string{"MEGA_LOCK_DRIVER=memory"}, is: []string{"MEGA_LOCK_DRIVER=memory", redis}},
		"a bus appears":              {is: []string{nats}, bus: "nats.url"},
		"another bus":                {was: []string{nats}, is: []string{"MEGA_NATS_URL=nats://other:4222"}, bus: "nats.url"},
		"the subjects":               {was: []string{nats}, is: []string{nats, "MEGA_BUS_NATS_PREFIX=shop"}, bus: "bus.nats.prefix"},
		"the socket":                 {is: []string{"MEGA_CLUSTER_SOCKET=auto"}, lock: "cluster.socket", bus: "cluster.socket"},
	} {
		t.Run(name, func(t *testing.T) {
			first, decided := pinnedBy(t, false, append(c.was, "MEGA_CLUSTER_WORKERS=2")...)
			of := Pins(decided, first)
			now, own := pinnedBy(t, true, append(c.is, "MEGA_CLUSTER_WORKERS=2")...)
			if lock, bus := of.Lock.differs(own.Lock, now), of.Bus.differs(own.Bus, now); lock != c.lock || bus != c.bus {
				t.Errorf("differs by %q and %q, want %q and %q", lock, bus, c.lock, c.bus)
			}
		})
	}
}

// Limits have the names of lock.redis.key, also where locks are elsewhere.
func TestWorkerIsHeldToWhereLimitsWere(t *testing.T) {
	at := []string{"MEGA_CACHE_MAIN_URL=redis://cache:6379/0", "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis"}
	for change, want := range map[string]string{"MEGA_LOG_LEVEL=debug": "", "MEGA_LOCK_REDIS_KEY=shop:{%s}": "lock.redis.key", "MEGA_LOCK_NAMESPACE=staging": "lock.namespace"} {
		first, decided := pinnedBy(t, false, at...)
		now, own := pinnedBy(t, true, append(at, change)...)
		if got := Pins(decided, first).Limit.differs(own.Limit, now); got != want {
			t.Errorf("with %s the limits differ by %q, want %q", change, got, want)
		}
	}
}
