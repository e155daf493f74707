package settings_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/settings"
)

func TestExplainShowsMeaningAndOriginOfAKey(t *testing.T) {
	s := source(folder(t, map[string]string{"mega.config.yaml": "lock: {ttl: 1s}\ndatabase: {pool: 3}\n", "mega.config.dev.yaml": "\nlock: {ttl: 2s}\n"}),
		"MEGA_ENV=dev", "MEGA_LOCK_TTL=3s", "MEGA_DATABASE_PASSWORD=hunter2", "MEGA_CACHE_MAIN_URL=redis://u:hunter2@h")
	c, err := settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []settings.Explanation{
		{
			Key: "lock.ttl", Doc: "how long others wait after a crash", Takes: "a duration such as 10s", Value: "3s", Set: true,
			Origin: settings.Origin{Layer: settings.LayerEnv, Name: "MEGA_LOCK_TTL"},
			Shadows: []settings.Origin{
				{Layer: settings.LayerFile, File: "mega.config.dev.yaml", Line: 2}, {Layer: settings.LayerFile, File: "mega.config.yaml", Line: 1},
			},
			Default: "10s", Variable: "MEGA_LOCK_TTL", Min: "100ms", Max: "24h",
		},
		{
			Key: "apps.web.database.pool", Takes: "a whole number", Value: "3", Set: true, Origin: settings.Origin{Layer: settings.LayerFile, File: "mega.config.yaml", Line: 2},
			Inherits: "database.pool", Variable: "MEGA_APPS_WEB_DATABASE_POOL", Min: "1", Max: "64",
		},
		{
			Key: "database.password", Takes: "text", Value: "***", Set: true, Origin: settings.Origin{Layer: settings.LayerEnv, Name: "MEGA_DATABASE_PASSWORD"},
			Variable: "MEGA_DATABASE_PASSWORD", Secret: true,
		},
		{
			Key: "cache.main.url", Doc: "the address of the server", Takes: "a URL", Value: "redis://***@h", Set: true, Origin: settings.Origin{Layer: settings.LayerEnv, Name: "MEGA_CACHE_MAIN_URL"},
			Variable: "MEGA_CACHE_MAIN_URL", Legal: []string{"redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"},
		},
		{
			Key: "apps.admin.log_level", Doc: "the lowest log level of the app", Takes: "text", Value: "info", Set: true, Origin: settings.Origin{Layer: settings.LayerDefault},
			Inherits: "log.level", Variable: "MEGA_APPS_ADMIN_LOG_LEVEL", Legal: []string{"debug", "info", "warn", "error"}, Live: true,
		},
		{Key: "lock.cache", Doc: "the alias of the cache for locks, if there are several", Takes: "text", Variable: "MEGA_LOCK_CACHE"},
	} {
		got, err := c.Explain(want.Key)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v, %v\nwant %+v", want.Key, got, err, want)
		}
	}
	s.Set = []string{"apps.web.database.pool=5"}
	if c, err = settings.Load(s); err != nil {
		t.Fatal(err)
	}
	own, err := c.Explain("apps.web.database.pool")
	if err != nil || own.Value != "5" || own.Inherits != "" || len(own.Shadows) != 1 || own.Shadows[0].Line != 2 {
		t.Errorf("an app's own value: %+v, %v, want it to shadow what all share", own, err)
	}
	addr, err := c.Explain("apps.admin.addr")
	if err != nil || addr.Default != "127.0.0.1:8081" || addr.Value != addr.Default {
		t.Errorf("an address that nobody set: %+v, %v", addr, err)
	}
}

func TestExplainOfAnUnknownKeyNamesTheNearest(t *testing.T) {
	c, err := settings.Load(source(""))
	if err != nil {
		t.Fatal(err)
	}
	for key, says := range map[string]string{"lock.tll": "did you mean lock.ttl?", "lock": `unknown key "lock"`, "apps.wbe.addr": "did you mean web?", "cache.*.url": "unknown key", "": "unknown key"} {
		_, err := c.Explain(key)
		if p, ok := errors.AsType[settings.Problems](err); !ok || !strings.Contains(p.Error(), says) {
			t.Errorf("%s: got %v, want %q", key, err, says)
		}
	}
}

func TestEveryKeyCanBeExplained(t *testing.T) {
	c, err := settings.Load(source("", "MEGA_CACHE_MAIN_URL=redis://h"))
	if err != nil {
		t.Fatal(err)
	}
	keys := c.Keys()
	for _, v := range c.Values() {
		if !slices.Contains(keys, v.Key) {
			t.Errorf("%s has a value, but is not among the keys", v.Key)
		}
	}
	for _, key := range keys {
		if e, err := c.Explain(key); err != nil || e.Doc == "" && !strings.Contains(key, "database") && !strings.Contains(key, "limits") {
			t.Errorf("%s: %+v, %v", key, e, err)
		}
	}
	for _, key := range []string{"cache.main.url", "apps.web.database.url", "limits.hosts", "nats.tls.ca"} {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is not among the keys", key)
		}
	}
}

func TestValuesAsJSONNameTheirOrigin(t *testing.T) {
	c, err := settings.Load(source("", "MEGA_NATS_TOKEN=hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c.Values())
	if err != nil || !strings.Contains(string(text), `{"key":"nats.token","value":"***","origin":"env MEGA_NATS_TOKEN"}`) || strings.Contains(string(text), "hunter2") {
		t.Errorf("got %s, %v", text, err)
	}
}
