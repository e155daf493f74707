package settings_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/settings"
)

// folder writes files, whose names may have folders in them.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// source is a program with two apps, of which web has a section of its own.
func source(dir string, environ ...string) settings.Source {
	return settings.Source{
		Dir: dir, Environ: environ, Apps: []string{"web", "admin"},
		Sections: []settings.Section{
			{Name: "database", App: "web", Type: reflect.TypeFor[database](), Site: "store.go:10"},
			{Name: "limits", Type: reflect.TypeFor[limits](), Site: "limits.go:3"},
		},
	}
}

type limits struct {
	Rate  float64  `key:"rate" default:"2.5" min:"0.1"`
	Big   int64    `key:"big"`
	Note  string   `key:"note"`
	Hosts []string `key:"hosts" default:"a,b"`
	Quiet bool     `key:"quiet"`
	Small uint8    `key:"small" max:"200"`
}

// problems loads s and returns what is wrong with it, a line each.
func problems(t *testing.T, s settings.Source) settings.Problems {
	t.Helper()
	_, err := settings.Load(s)
	p, ok := errors.AsType[settings.Problems](err)
	if !ok {
		t.Fatalf("got %v, want problems", err)
	}
	return p
}

// sample has the same configuration in each format.
var sample = map[string]string{
	"mega.config.yaml": `# yaml-language-server: $schema=mega.schema.json
name: shop
lock:
  ttl: 20s
  fifo: true
cache:
  main: {url: "redis://h:6379"}
apps:
  web:
    addr: ":9000"
    locales: [ko, en]
    body_limit: 2MiB
limits:
  rate: 0.5
  big: 9007199254740993
`,
	"mega.config.toml": `name = "shop"
[lock]
ttl = "20s"
fifo = true
[cache]
main.url = "redis://h:6379"
[apps.web]
addr = ":9000"
locales = ["ko", "en"]
body_limit = "2MiB"
[limits]
rate = 0.5
big = 9_007_199_254_740_993
`,
	"mega.config.json": `{
  "$schema": "mega.schema.json",
  "name": "shop",
  "lock": {"ttl": "20s", "fifo": true},
  "cache": {"main": {"url": "redis://h:6379"}},
  "apps": {"web": {
    "addr": ":9000",
    "locales": ["ko", "en"],
    "body_limit": "2MiB"
  }},
  "limits": {
    "rate": 0.5,
    "big": 9007199254740993
  }
}
`,
}

func TestAllFormatsGiveTheSameValuesAndPlaces(t *testing.T) {
	lines := map[string][]int{"mega.config.yaml": {4, 7, 11, 15}, "mega.config.toml": {3, 6, 9, 13}, "mega.config.json": {4, 5, 8, 13}}
	for name, text := range sample {
		for variant, text := range map[string]string{"": text, " with CRLF": strings.ReplaceAll(text, "\n", "\r\n"), " with a BOM": "\xef\xbb\xbf" + text} {
			c, err := settings.Load(source(folder(t, map[string]string{name: text})))
			if err != nil {
				t.Errorf("%s%s: %v", name, variant, err)
				continue
			}
			section, _ := c.Section("", "limits")
			for i, x := range []struct {
				key       string
				got, want any
			}{
				{"lock.ttl", c.Lock.TTL, 20 * time.Second},
				{"cache.main.url", c.Cache["main"].URL.Reveal(), "redis://h:6379"},
				{"apps.web.locales", strings.Join(c.Apps["web"].Locales, " "), "ko en"},
				{"limits.big", section.(limits).Big, int64(9007199254740993)},
			} {
				if origin := c.Origin(x.key); x.got != x.want || origin.File != name || origin.Line != lines[name][i] {
					t.Errorf("%s%s: %s is %v from %v, want %v from line %d", name, variant, x.key, x.got, origin, x.want, lines[name][i])
				}
			}
			if c.Name != "shop" || !c.Lock.FIFO || c.Apps["web"].BodyLimit != 2<<20 || section.(limits).Rate != 0.5 {
				t.Errorf("%s%s: got %+v, %+v", name, variant, c, section)
			}
		}
	}
}

// What a parser complains of may be a secret.
func TestErrorsDoNotRepeatTheContentOfAFile(t *testing.T) {
	const secret = "99999999999999999999123"
	for name, text := range map[string]string{
		tomlFile: "nats.token = " + secret, yamlFile: "nats: {token: *" + secret + "}", jsonFile: `{"nats": {"token": "` + secret + `\x"}}`, ".env": "MEGA_NATS_TOKEN='" + secret,
	} {
		p := problems(t, source(folder(t, map[string]string{name: text}), "MEGA_ENV=dev"))
		if len(p) != 1 || p[0].Code != "config.syntax" || strings.Contains(p.Error(), secret) {
			t.Errorf("%s: got %v", name, p)
		}
	}
	for _, text := range []string{"nats: {token: " + secret + "}", "nats: {token: !" + secret + "}", "nats: {token: !!" + secret + " x}", "nats: {token: [" + secret + "]}", "nats: {url: " + secret + "}", "nats: {url: '//u:" + secret + "@h'}"} {
		if p := problems(t, source(folder(t, map[string]string{yamlFile: text}))); strings.Contains(p.Error(), secret) && !strings.Contains(text, "url: 9") {
			t.Errorf("%s: got %v", text, p)
		}
	}
}

func TestTheCommandLineMayChooseTheEnvironment(t *testing.T) {
	s := source(folder(t, map[string]string{"mega.config.staging.yaml": "lock: {ttl: 3s}\n", ".env": "MEGA_LOCK_TTL=4s\n"}), "MEGA_ENV=dev")
	s.Set = []string{"env=staging"}
	c, err := settings.Load(s)
	if err != nil || c.Env != "staging" || c.Lock.TTL != 3*time.Second {
		t.Errorf("got %v, %v", c, err)
	}
	s.Set = []string{"env=../staging"}
	if p := problems(t, s); len(p) != 1 || !strings.Contains(p.Error(), "--set env: \"../staging\" is not like staging") {
		t.Errorf("got %v", p)
	}
	s.Set = []string{"env=Production"}
	if p := problems(t, s); len(p) != 1 || !strings.Contains(p.Error(), "\"Production\" is not like staging; did you mean \"production\"?") {
		t.Errorf("got %v", p)
	}
}

func TestAnotherSpellingOfAnEnvironmentIsDoubted(t *testing.T) {
	doubt := func(env string, files map[string]string) string {
		c, err := settings.Load(source(folder(t, files), "MEGA_ENV="+env))
		if err != nil {
			t.Fatal(err)
		}
		return c.EnvWarning()
	}
	for env, meant := range map[string]string{"prodution": "production", "prod": "production", "development": "dev", "testing": "test"} {
		got, want := doubt(env, map[string]string{yamlFile: "name: shop"}), "env "+env+" has no file of its own (did you mean "+meant+"?)"
		if got != want {
			t.Errorf("%s: got %q, want %q", env, got, want)
		}
	}
	for _, env := range []string{"dev", "test", "production", "staging", "preprod", "qa", "uat", "demo", "ci", "dev-2", "test2"} {
		if got := doubt(env, map[string]string{yamlFile: "name: shop"}); got != "" {
			t.Errorf("%s: got %q", env, got)
		}
	}
	if got := doubt("prod", map[string]string{"mega.config.prod.yaml": "name: shop"}); got != "" {
		t.Errorf("an environment with a file: got %q", got)
	}
}

func TestLayersLieOverEachOther(t *testing.T) {
	files := map[string]string{
		"mega.config.yaml":         "lock: {ttl: 1s, wait: 1s, fifo: true}\nlimits: {hosts: [a, b, c], note: file}\napps: {web: {timeout: 1s, host: a.example.org}, admin: {timeout: 1s}}\nlog: {level: warn}\n",
		"mega.config.dev.yaml":     "lock: {ttl: 2s}\nlimits: {hosts: [d]}\napps: {web: {timeout: 2s}}\n",
		"mega.config.staging.yaml": "lock: {ttl: 3s}\n",
		"apps/web/app.config.yaml": "timeout: 3s\ndatabase: {pool: 9}\n",
		".env":                     "MEGA_LOCK_TTL=4s\nMEGA_LOCK_WAIT=4s\nOTHER=1\nMEGA_LIMITS_NOTE=dotenv\nMEGA_LOG_LEVEL=\n",
	}
	s := source(folder(t, files), "MEGA_ENV=dev", "MEGA_LOCK_WAIT=5s", "MEGA_LIMITS_NOTE=", "MEGA_APPS_WEB_DATABASE_POOL=11")
	s.Set = []string{"lock.redis.key=x:%s"}
	c, err := settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"lock.ttl": "4s .env:1 MEGA_LOCK_TTL", "lock.wait": "5s env MEGA_LOCK_WAIT", "lock.fifo": "true mega.config.yaml:1", "lock.redis.key": "x:%s --set lock.redis.key",
		"limits.hosts": "d mega.config.dev.yaml:2", "limits.note": "dotenv .env:4 MEGA_LIMITS_NOTE", "limits.rate": "2.5 default",
		"apps.web.timeout": "3s " + filepath.FromSlash("apps/web/app.config.yaml:1"), "apps.admin.timeout": "1s mega.config.yaml:3",
		"apps.web.database.pool": "11 env MEGA_APPS_WEB_DATABASE_POOL", "log.level": "warn mega.config.yaml:4", "apps.web.host": "a.example.org mega.config.yaml:3",
	}
	for _, v := range c.Values() {
		if text, ok := want[v.Key]; ok && v.Text+" "+v.Origin.String() != text {
			t.Errorf("%s is %s %v, want %s", v.Key, v.Text, v.Origin, text)
		}
		delete(want, v.Key)
		if v.Key == "lock.ttl" && len(v.Shadows) != 2 {
			t.Errorf("lock.ttl shadows %v, want both files", v.Shadows)
		}
	}
	if len(want) > 0 {
		t.Errorf("without a value: %v", want)
	}
	var read []string
	for _, f := range c.Files() {
		read = append(read, filepath.ToSlash(f.Path))
	}
	if got := strings.Join(read, " "); got != "mega.config.yaml mega.config.dev.yaml apps/web/app.config.yaml .env" {
		t.Errorf("read %s", got)
	}
}

func TestDotEnvIsForDevAndTestAlone(t *testing.T) {
	dir := folder(t, map[string]string{".env": "MEGA_LOCK_TTL=4s\n"})
	for env, want := range map[string]time.Duration{"dev": 4 * time.Second, "test": 4 * time.Second, "production": 10 * time.Second, "staging": 10 * time.Second} {
		c, err := settings.Load(source(dir, "MEGA_ENV="+env))
		if err != nil || c.Lock.TTL != want {
			t.Errorf("in %s lock.ttl is %v, %v, want %v", env, c.Lock.TTL, err, want)
		}
	}
}

func TestAMissingKeyThatAnUnreadDotEnvSetsIsExplained(t *testing.T) {
	type mail struct {
		Host string `key:"host" required:"true"`
		User string `key:"user" required:"true"`
	}
	dir := folder(t, map[string]string{
		".env":         "# mail\nMEGA_MAIL_HOST=h\nMEGA_MAIL_USER=\nMEGA_APPS_WEB_SMS_HOST=h\n",
		".env.dev":     "MEGA_MAIL_USER=u\n",
		".env.staging": "MEGA_MAIL_HOST=h\n",
	})
	for env, want := range map[string]string{
		"production": `config.missing apps.web.sms.host: is required (set MEGA_APPS_WEB_SMS_HOST; .env:4 sets it, but env production does not read that file)
config.missing apps.web.sms.user: is required (set MEGA_SMS_USER)
config.missing mail.host: is required (set MEGA_MAIL_HOST; .env:2 sets it, but env production does not read that file)
config.missing mail.user: is required (set MEGA_MAIL_USER)
`,
		"dev": `config.missing apps.web.sms.user: is required (set MEGA_SMS_USER)
config.missing mail.user: is required (set MEGA_MAIL_USER; .env.dev:1 sets it, but env dev does not read that file)
`,
		"staging": `config.missing apps.web.sms.host: is required (set MEGA_APPS_WEB_SMS_HOST; .env:4 sets it, but env staging does not read that file)
config.missing apps.web.sms.user: is required (set MEGA_SMS_USER)
config.missing mail.host: is required (set MEGA_MAIL_HOST; .env.staging:1 sets it, but env staging does not read that file)
config.missing mail.user: is required (set MEGA_MAIL_USER)
`,
	} {
		s := source(dir, "MEGA_ENV="+env)
		s.Sections = []settings.Section{{Name: "mail", Type: reflect.TypeFor[mail]()}, {Name: "sms", App: "web", Type: reflect.TypeFor[mail]()}}
		got := ""
		for _, p := range problems(t, s) {
			got += p.Code + " " + p.String() + "\n"
		}
		if got != want {
			t.Errorf("%s: got\n%swant\n%s", env, got, want)
		}
	}
}

// A key that a file would set is not missing as well, if the file cannot be read.
func TestAFileThatIsNotReadExplainsItsMissingKeys(t *testing.T) {
	type mail struct {
		Host string `key:"host" required:"true"`
	}
	const keys = "mail: {host: h}\nlock: {cache: main}\ncache: {main: {url: redis://h}}\n"
	for name, x := range map[string]struct {
		files map[string]string
		file  string
		code  string
	}{
		"a syntax error":    {map[string]string{yamlFile: keys + "ops:\n\taddr: x\n"}, "", "config.syntax"},
		"a second document": {map[string]string{yamlFile: keys + "---\nname: x\n"}, "", "config.syntax"},
		"not UTF-8":         {map[string]string{yamlFile: keys + "name: \xff\n"}, "", "config.file"},
		"another ending":    {map[string]string{"mega.config.yml": keys}, "", "config.no_file"},
		"another place":     {map[string]string{yamlFile: keys}, "elsewhere.yaml", "config.no_file"},
		".env":              {map[string]string{".env": "MEGA_MAIL_HOST='h\n"}, "", "config.syntax"},
	} {
		s := source(folder(t, x.files), "MEGA_ENV=dev")
		s.File, s.Sections = x.file, []settings.Section{{Name: "mail", Type: reflect.TypeFor[mail]()}}
		if p := problems(t, s); len(p) != 1 || p[0].Code != x.code {
			t.Errorf("%s: got %v, want one problem of %s", name, p, x.code)
		}
	}
	s := source(folder(t, nil), "MEGA_ENV=dev")
	s.Set, s.Sections = []string{"name"}, []settings.Section{{Name: "mail", Type: reflect.TypeFor[mail]()}}
	if p := problems(t, s); len(p) != 2 {
		t.Errorf("an argument without a value: got %v, want the missing key too", p)
	}
}

func TestFilesAreFoundUpwardsToTheRootOfTheModule(t *testing.T) {
	dir := folder(t, map[string]string{
		"mega.config.yaml":             "name: outside\n",
		"module/go.mod":                "module x\n",
		"module/cmd/web/main.go":       "package main\n",
		"module/app/mega.config.yaml":  "name: inside\n",
		"module/app/deep/down/x.go":    "package x\n",
		"repository/.git/HEAD":         "ref\n",
		"repository/mega.config.toml":  "name = 'repository'\n",
		"repository/cmd/main.go":       "package main\n",
		"repository/dev/.env":          "\n",
		"repository/dev/x/a.go":        "\n",
		"alone/deep/x.go":              "package x\n",
		"alone/mega.config.yaml":       "name: alone\n",
		"env/go.mod":                   "module y\n",
		"env/sub/mega.config.dev.yaml": "name: overlay\n",
		"env/mega.config.yaml":         "name: base\n",
	})
	for _, x := range []struct{ from, env, name string }{
		{"module/cmd/web", "dev", ""}, {"module/app/deep/down", "dev", "inside"}, {"module/app", "dev", "inside"},
		{"repository/cmd", "dev", "repository"}, {"alone/deep", "dev", ""}, {"alone", "dev", "alone"},
		{"env/sub", "dev", "overlay"}, {"env/sub", "test", "base"},
	} {
		c, err := settings.Load(source(filepath.Join(dir, filepath.FromSlash(x.from)), "MEGA_ENV="+x.env))
		if err != nil || c.Name != x.name {
			t.Errorf("from %s: name is %q, %v, want %q", x.from, c.Name, err, x.name)
		}
	}
	if c, err := settings.Load(source("")); err != nil || len(c.Files()) != 0 {
		t.Errorf("without a folder to begin in: %v, %v", c.Files(), err)
	}
}

func TestAFileOrAFolderMayBeNamed(t *testing.T) {
	dir := folder(t, map[string]string{
		"etc/shop.yaml": "name: shop\nlock: {wait: 1s}\n", "etc/shop.staging.yaml": "lock: {ttl: 7s}\n", "etc/mega.config.toml": "name = 'folder'\n",
		"etc/apps/web/app.config.json": `{"addr": ":9000"}`, "empty/x": "", "etc/shop.conf": "name: x\n", "mega.config.yaml": "name: near\n",
	})
	for _, x := range []struct{ file, variable, name, says string }{
		{"etc/shop.yaml", "", "shop", ""},
		{"", "etc/shop.yaml", "shop", ""},
		{filepath.Join(dir, "etc", "shop.yaml"), "etc/nothing", "shop", ""},
		{"etc", "", "folder", ""},
		{"", "", "near", ""},
		{"etc/none.yaml", "", "", "--config: \"etc/none.yaml\" cannot be read"},
		{"", "none", "", "MEGA_CONFIG: \"none\" cannot be read"},
		{"empty", "", "", "has no mega.config file"},
		{"etc/shop.conf", "", "", ".yaml, .toml or .json"},
		{"etc/shop.yaml/x", "", "", "cannot be read"},
	} {
		s := source(dir, "MEGA_ENV=staging", "MEGA_CONFIG="+x.variable)
		s.File = x.file
		c, err := settings.Load(s)
		switch {
		case x.says != "":
			if p := problems(t, s); len(p) != 1 || p[0].Code != "config.no_file" || !strings.Contains(p.Error(), x.says) {
				t.Errorf("%q %q: got %v, want %q", x.file, x.variable, p, x.says)
			}
		case err != nil || c.Name != x.name:
			t.Errorf("%q %q: got %v, want %q", x.file, x.variable, err, x.name)
		case x.name == "shop" && (c.Lock.TTL != 7*time.Second || c.Apps["web"].Addr != ":9000"):
			t.Errorf("%q %q: what is beside it was not read: %+v", x.file, x.variable, c)
		}
	}
}

// mistake is a file with one thing wrong.
type mistake struct{ file, text, code, says string }

const yamlFile, tomlFile, jsonFile = "mega.config.yaml", "mega.config.toml", "mega.config.json"

var mistakes = []mistake{
	{yamlFile, "name: shop\nlock:\n  drivr: redis\n", "config.unknown_key", `mega.config.yaml:3: unknown key "lock.drivr" (did you mean lock.driver?)`},
	{tomlFile, "[lock]\ndrivr = 'redis'\n", "config.unknown_key", `mega.config.toml:2: unknown key "lock.drivr" (did you mean lock.driver?)`},
	{jsonFile, "{\"lock\": {\n\"drivr\": 1}}", "config.unknown_key", `mega.config.json:2: unknown key "lock.drivr" (did you mean lock.driver?)`},
	{yamlFile, "lok: {ttl: 5s}\n", "config.unknown_key", "did you mean lock?"},
	{yamlFile, "boot: {waitFor: 5s}\n", "config.unknown_key", "did you mean boot.wait_for?"},
	{yamlFile, "fifo: true\n", "config.unknown_key", "did you mean lock.fifo?"},
	{yamlFile, "redis: {url: 'redis://h'}\n", "config.unknown_key", "unknown key \"redis\" (did you mean cache.main.url?)"},
	{yamlFile, "limits: {b: 1}\n", "config.unknown_key", "unknown key \"limits.b\" (did you mean limits.big?)"},
	{yamlFile, "something_else_entirely: 1\n", "config.unknown_key", `unknown key "something_else_entirely"`},
	{yamlFile, "lock.ttl: 5s\n", "config.unknown_key", "write a section for each part: lock: {ttl: …}"},
	{tomlFile, "\"lock.ttl\" = '5s'\n", "config.unknown_key", `"lock.ttl" contains a dot`},
	{yamlFile, "apps: {wbe: {addr: ':1'}}\n", "config.unknown_app", `this program has no app "wbe" (did you mean web? its apps: web, admin)`},
	{yamlFile, "cache: {Main: {url: redis://h}}\n", "config.invalid", "an alias is a lower-case word"},
	{yamlFile, "cache: {my-cache: {url: redis://h}}\n", "config.invalid", "an alias is a lower-case word"},
	{yamlFile, "env: dev\n", "config.too_late", "set MEGA_ENV"},
	{yamlFile, "x: {y: &a {z: 1}}\n", "config.unknown_key", `"x"`},

	{yamlFile, "lock: {ttl: 5}\n", "config.no_unit", `mega.config.yaml:1: lock.ttl: "5" has no unit (write 5s)`},
	{tomlFile, "[lock]\nttl = 5\n", "config.no_unit", `mega.config.toml:2: lock.ttl: "5" has no unit (write 5s)`},
	{yamlFile, "lock: {ttl: 1e1}\n", "config.no_unit", `"1e1" has no unit (write 10s)`},
	{yamlFile, "lock: {ttl: 1e300}\n", "config.no_unit", `has no unit`},
	{yamlFile, "apps: {web: {body_limit: 1.5}}\n", "config.no_unit", `"1.5" has no unit (write 1.5KiB)`},
	{yamlFile, "apps: {web: {body_limit: +5}}\n", "config.no_unit", `"+5" has no unit (write 5B or 5KiB)`},
	{yamlFile, "lock: {ttl: '5'}\n", "config.no_unit", "write 5s"},
	{yamlFile, "lock: {ttl: 1.5}\n", "config.no_unit", "write 1.5s"},
	{yamlFile, "apps: {web: {body_limit: 1048576}}\n", "config.no_unit", "write 1048576B or 1048576KiB"},
	{yamlFile, "apps: {web: {body_limit: 1M}}\n", "config.invalid", "is not a size such as"},
	{yamlFile, "apps: {web: {body_limit: 0B}}\n", "config.invalid", "0B is less than 1B"},
	{yamlFile, "apps: {web: {body_limit: 9EiB}}\n", "config.invalid", "is not a size"},
	{yamlFile, "apps: {web: {body_limit: 0.3B}}\n", "config.invalid", "whole number of bytes"},
	{yamlFile, "apps: {web: {body_limit: 99999999TiB}}\n", "config.invalid", "below 8EiB"},

	{yamlFile, "name: x\nlock:\n", "config.empty_section", "mega.config.yaml:2: the section lock is empty"},
	{yamlFile, "lock: {}\n", "config.empty_section", "remove it"},
	{yamlFile, "cache: {main: }\n", "config.empty_section", "cache.main"},
	{yamlFile, "apps: {web: ~}\n", "config.empty_section", "apps.web"},
	{tomlFile, "[lock]\n[log]\nlevel='info'\n", "config.empty_section", "mega.config.toml:1: the section lock is empty"},
	{jsonFile, "{\n\"lock\": null}", "config.empty_section", "mega.config.json:2"},
	{yamlFile, "lock: redis\n", "config.invalid", "lock is a section of keys, but the value is text (one of its keys is lock.driver)"},
	{yamlFile, "cache: redis\n", "config.invalid", "(one of its keys is cache.main.url)"},
	{yamlFile, "cache: {url: redis}\n", "config.invalid", "(one of its keys is cache.main.url)"},
	{yamlFile, "cache: {sessions: redis}\n", "config.invalid", "(one of its keys is cache.sessions.url)"},
	{yamlFile, "cache: {mail: {urll: x}}\n", "config.unknown_key", `unknown key "cache.mail.urll" (did you mean cache.mail.url?)`},
	{yamlFile, "lock: [a]\n", "config.invalid", "the value is a list"},
	{yamlFile, "lock: {driver: {redis: 1}}\n", "config.invalid", "is a section of keys, but the key takes text"},
	{yamlFile, "lock: {ttl: }\n", "config.invalid", "lock.ttl: has no value"},
	{jsonFile, `{"lock": {"ttl": null}}`, "config.invalid", "has no value"},

	{yamlFile, "limits: {note: 012}\n", "config.invalid", `"012" is a number, but the key takes text (write "012")`},
	{yamlFile, "name: 1.10\n", "config.invalid", `write "1.10"`},
	{yamlFile, "limits: {note: true}\n", "config.invalid", `write "true"`},
	{yamlFile, "limits: {note: 2024-01-01}\n", "config.invalid", `"2024-01-01" is a date, but the key takes text (write "2024-01-01")`},
	{tomlFile, "limits.note = 2024-01-01T00:00:00Z\n", "config.invalid", `is a date, but the key takes text (write "2024-01-01T00:00:00Z")`},
	{tomlFile, "limits.note = 2024-01-01\n", "config.invalid", `write "2024-01-01"`},
	{tomlFile, "limits.note = 07:30:00\n", "config.invalid", `write "07:30:00"`},
	{tomlFile, "limits.note = 2024-01-01T00:00:00\n", "config.invalid", `is a date`},
	{yamlFile, "limits: {big: 012}\n", "config.invalid", `"012" begins with 0`},
	{yamlFile, "limits: {big: 0x1F}\n", "config.invalid", `"0x1F" is not a whole number`},
	{yamlFile, "limits: {big: 1.5}\n", "config.invalid", "is not a whole number"},
	{yamlFile, "limits: {big: '8'}\n", "config.invalid", `"8" is text, but the key takes a whole number (write it without quotes)`},
	{yamlFile, "limits: {big: eight}\n", "config.invalid", `limits.big: "eight" is text, but the key takes a whole number`},
	{yamlFile, "limits: {small: '201'}\n", "config.invalid", `"201" is text, but the key takes a whole number`},
	{jsonFile, `{"limits": {"big": 9223372036854775808}}`, "config.invalid", `"9223372036854775808" is out of the range of int64`},
	{yamlFile, "limits: {small: 256}\n", "config.invalid", `"256" is out of the range of uint8`},
	{yamlFile, "limits: {small: -1}\n", "config.invalid", `"-1" is out of the range of uint8`},
	{yamlFile, "limits: {small: 201}\n", "config.invalid", `201 is more than 200`},
	{jsonFile, `{"limits": {"big": 1e-5}}`, "config.invalid", "is not a whole number"},
	{jsonFile, `{"limits": {"big": 1e300}}`, "config.invalid", "is not a whole number"},
	{yamlFile, "limits: {rate: .inf}\n", "config.invalid", "is not a number"},
	{yamlFile, "limits: {rate: 0.01}\n", "config.invalid", "less than 0.1"},
	{yamlFile, "limits: {quiet: yes}\n", "config.invalid", `"yes" is text, but the key takes true or false (write true)`},
	{yamlFile, "limits: {quiet: Off}\n", "config.invalid", "(write false)"},
	{yamlFile, "limits: {quiet: maybe}\n", "config.invalid", "(write true or false)"},
	{yamlFile, "limits: {quiet: 'true'}\n", "config.invalid", "(write it without quotes)"},
	{yamlFile, "limits: {quiet: 1}\n", "config.invalid", "takes true or false"},
	{yamlFile, "limits:\n  hosts: a,b\n", "config.invalid", `write a list: ["a", "b"]`},
	{yamlFile, "limits:\n  hosts:\n  - a\n  - 5\n", "config.invalid", `the item in line 4 is a number, not text (write "5")`},
	{tomlFile, "[limits]\nhosts = [\n  'a', # b\n  5,\n]\n", "config.invalid", `mega.config.toml:2: limits.hosts: the item in line 4 is a number, not text (write "5")`},
	{tomlFile, "[limits]\nhosts = [\n  'a',\n\n  [[5]],\n]\n", "config.invalid", `the item in line 5 is a list`},
	{tomlFile, "[limits]\n[[limits.hosts]]\nx = 1\n", "config.invalid", `the item in line 2 is a section of keys`},
	{jsonFile, "{\"limits\": {\"hosts\": [\n\"a\",\n5]}}", "config.invalid", `mega.config.json:1: limits.hosts: the item in line 3 is a number, not text`},
	{yamlFile, "limits: {hosts: [a, '']}\n", "config.invalid", "an item of the list is empty"},
	{yamlFile, "limits: {hosts: [[a]]}\n", "config.invalid", "is a list, not text"},
	{yamlFile, "apps: {web: {addr: 80}}\n", "config.invalid", `"80" is a number, but the key takes an address such as 127.0.0.1:8080 (write "127.0.0.1:80", or ":80" for every address of the machine)`},
	{yamlFile, "apps: {web: {prefix: admin}}\n", "config.invalid", `"admin" is not like /admin`},
	{yamlFile, "apps: {web: {prefix: /admin/}}\n", "config.invalid", `"/admin/" is not like /admin; did you mean "/admin"?`},
	{yamlFile, "apps: {web: {prefix: /}}\n", "config.invalid", `"/" is not like /admin`},
	{yamlFile, "apps: {web: {host: 'http://x'}}\n", "config.invalid", `is not like admin.example.org`},
	{yamlFile, "apps: {web: {trusted_origins: ['https://shop.example.org/']}}\n", "config.invalid", `is not like https://shop.example.org; did you mean "https://shop.example.org"?`},
	{yamlFile, "apps: {web: {trusted_origins: [shop.example.org]}}\n", "config.invalid", `is not like https://shop.example.org`},
	{yamlFile, "apps: {web: {locales: [korean_KR]}}\n", "config.invalid", `is not like en`},
	{yamlFile, "nats: {token: 12345678}\n", "config.invalid", "nats.token: is a number, but the key takes text (put it in quotes)"},

	{yamlFile, "lock:\n  ttl: 5s\n  ttl: 6s\n", "config.duplicate_key", `mega.config.yaml:3: the key "ttl" exists twice, first in line 2`},
	{jsonFile, "{\"name\": \"a\",\n\"name\": \"b\"}", "config.duplicate_key", `mega.config.json:2: the key "name" exists twice, first in line 1`},
	{tomlFile, "name = 'a'\nname = 'b'\n", "config.syntax", "mega.config.toml:2: is not TOML"},

	{yamlFile, "lock: {ttl: 5s\n", "config.syntax", "mega.config.yaml:2: is not YAML"},
	{yamlFile, "lock:\n\tttl: 5s\n", "config.syntax", "mega.config.yaml:2: is not YAML: a tab indents the line (indent with spaces)"},
	{yamlFile, "lock:\n  ttl: 5s\n\twait: 5s\n", "config.syntax", "mega.config.yaml:3: is not YAML: a tab indents the line"},
	{yamlFile, "lock:\n  ttl: 5s\n  \twait: 5s\n", "config.syntax", "mega.config.yaml:3: is not YAML: a tab indents the line"},
	{yamlFile, "limits:\n  hosts:\n\t- a\n", "config.syntax", "mega.config.yaml:3: is not YAML: a tab indents the line"},
	{yamlFile, "%YAML 1.2\n---\nname: shop\n", "config.syntax", "mega.config.yaml:1: is not YAML: found incompatible YAML document (remove the line %YAML)"},
	{yamlFile, "# shop\n%YAML 1.2\n---\nname: shop\n", "config.syntax", "mega.config.yaml:2: is not YAML: found incompatible YAML document (remove"},
	{yamlFile, "a: b: c\n", "config.syntax", "mega.config.yaml:1: is not YAML: mapping values"},
	{yamlFile, "name: shop\nlock: *gone\n", "config.syntax", "mega.config.yaml:2: is not YAML: an alias has no anchor"},
	{yamlFile, "name: &ab x # *a\nlimits:\n  note: *ab\n  hosts: [*a]\n", "config.syntax", "mega.config.yaml:4: is not YAML: an alias has no anchor"},
	{yamlFile, "name: a\nlock: & {}\n", "config.syntax", "mega.config.yaml:2: is not YAML: did not find expected alphabetic"},
	{yamlFile, "name: a\nlock: |x\n  y\n", "config.syntax", "mega.config.yaml:2: is not YAML: did not find expected comment"},
	{yamlFile, "name: a\nlock:\n  driver: !x!y z\n", "config.syntax", "mega.config.yaml:3: is not YAML: found undefined tag handle"},
	{yamlFile, "name: a\nlock:\n  driver: \x01\n", "config.syntax", "mega.config.yaml:3: is not YAML: control characters"},
	{yamlFile, "name: a\nlock: [a\nlog: {}\n", "config.syntax", "mega.config.yaml:2: is not YAML: did not find expected ','"},
	{yamlFile, "name: a\n---\nname: b\n", "config.syntax", "the file has a second document"},
	{yamlFile, "- name: a\n", "config.syntax", "contains a list, not keys"},
	{yamlFile, "shop\n", "config.syntax", "contains text, not keys"},
	{yamlFile, "1: x\n", "config.syntax", "a key is not text"},
	{yamlFile, "? [a]\n: x\n", "config.syntax", "a key is not text"},
	{yamlFile, "name: !env NAME\n", "config.syntax", "mega.config.yaml:1: a tag is not allowed here (remove it, or put a text that begins with ! in quotes)"},
	{yamlFile, "lock: {<<: 5, ttl: 5s}\n", "config.syntax", "<< needs a mapping"},
	{tomlFile, "name = shop\n", "config.syntax", "mega.config.toml:1: is not TOML"},
	{tomlFile, "[lock]\n\tttl = 5s # soon\n", "config.syntax", "is not TOML: strings must be quoted\n   ttl = 5s # soon\n          ^"},
	{tomlFile, "[nats]\nurl = nats://ann:pw@h\n", "config.syntax", "\n  url = •\n        ^"},
	{tomlFile, "[nats]\ntoken = s3cret \"x\"\n", "config.syntax", "\n  token = •"},
	{tomlFile, "[lock\nttl = '5s'\n", "config.syntax", "\n  [lock\n"},
	{tomlFile, "limits = { note = 5s, token = s3cret }\n", "config.syntax", "\n  limits = • •••• • ••\n"},
	{jsonFile, "{\n\"name\": \"shop\",\n}", "config.syntax", "mega.config.json:3: is not JSON"},
	{jsonFile, "", "config.syntax", "mega.config.json:1: is not JSON"},
	{jsonFile, "{} {}", "config.syntax", "is not JSON"},
	{jsonFile, "[]", "config.syntax", "contains a list"},
	{yamlFile, "name: \xff\n", "config.file", "mega.config.yaml: is not UTF-8, from line 1 on (save the file as UTF-8)"},
	{tomlFile, "name = 'a'\n# \xc3\x28\n", "config.file", "is not UTF-8, from line 2 on"},
	{yamlFile, "\xff\xfen\x00", "config.file", "is not UTF-8"},
	{yamlFile, "# " + strings.Repeat("x", 1<<20), "config.file", "is larger than 1MiB"},
	{yamlFile, "lock: " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "config.file", "nests deeper than 32 levels"},
	{jsonFile, strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "config.file", "nests deeper than 32 levels"},
	{tomlFile, "lock = " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "config.file", "nests deeper than 32 levels"},
	{yamlFile, "limits: {hosts: [" + strings.Repeat("a,", 60_000) + "]}\n", "config.file", "holds more than 50000 values"},
	{jsonFile, `{"limits": {"hosts": [` + strings.Repeat("1,", 60_000) + "1]}}", "config.file", "holds more than 50000 values"},
	{yamlFile, bomb, "config.file", "holds more than 50000 values"},
	{yamlFile, "lock: &a {ttl: 5s, redis: *a}\n", "config.file", "nests deeper than 32 levels"},
}

func TestMistakesInFilesAreReportedWithTheirLine(t *testing.T) {
	for _, x := range mistakes {
		p := problems(t, source(folder(t, map[string]string{x.file: x.text})))
		if len(p) != 1 || p[0].Code != x.code || !strings.Contains(p.Error(), x.says) {
			t.Errorf("%.60q: got %s %.400q, want %s %q", x.text, p[0].Code, p.Error(), x.code, x.says)
		}
	}
}

// bomb is a file of which an alias of an alias of an alias is made.
var bomb = func() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		a := string(rune('0' + i))
		b.WriteString("a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" + strings.Repeat("*a"+a+", ", 9) + "]\n")
	}
	return b.String()
}()

func TestAnchorsAndMergeKeysOfYAMLAreUnderstood(t *testing.T) {
	c, err := settings.Load(source(folder(t, map[string]string{"mega.config.yaml": `apps:
  web: &defaults
    timeout: 5s
    log_level: debug
    body_limit: 2MiB
  admin:
    <<: *defaults
    timeout: 6s
limits: {note: &n no, hosts: [*n, yes]}
`})))
	if err != nil {
		t.Fatal(err)
	}
	admin := c.Apps["admin"]
	if admin.Timeout != 6*time.Second || admin.LogLevel != "debug" || admin.BodyLimit != 2<<20 {
		t.Errorf("admin is %+v", admin)
	}
	if o := c.Origin("apps.admin.log_level"); o.Line != 4 {
		t.Errorf("what was merged in is from %v, want the line that says it", o)
	}
	section, _ := c.Section("", "limits")
	if l := section.(limits); l.Note != "no" || !slices.Equal(l.Hosts, []string{"no", "yes"}) {
		t.Errorf("no is %+v, want text", l)
	}
}

func TestOnlyOneFormatInAFolder(t *testing.T) {
	for _, x := range []struct {
		files []string
		says  string
	}{
		{[]string{"mega.config.yaml", "mega.config.toml"}, "mega.config.toml: has another format than mega.config.yaml beside it"},
		{[]string{"mega.config.toml", "mega.config.dev.json"}, "mega.config.dev.json: has another format than mega.config.toml beside it"},
		{[]string{"apps/web/app.config.yaml", "apps/web/app.config.json"}, "app.config.json: has another format"},
		{[]string{"mega.config.yml"}, "mega.config.yml: is not read (rename it"},
		{[]string{"mega.config.yaml", "mega.config.dev.yml"}, "mega.config.dev.yml: is not read"},
		{[]string{"apps/web/app.config.dev.yaml"}, "into mega.config.dev.*, below apps.web"},
		{[]string{"apps/web/mega.config.yaml"}, "mega.config.yaml: is not read (rename it: the file of an app is app.config.yaml)"},
		{[]string{"apps/other/mega.config.yaml"}, ""},
		{[]string{"apps/wbe/app.config.yaml"}, `this program has no app "wbe" (did you mean web?`},
		{[]string{"mega.config.yaml", "mega.config.staging.toml", "apps/web/app.config.json", "apps/admin/app.config.toml", "apps/README.md", "apps/other/x.go"}, ""},
	} {
		files := map[string]string{}
		for _, name := range x.files {
			files[name] = map[string]string{".json": `{}`}[filepath.Ext(name)]
		}
		s := source(folder(t, files), "MEGA_ENV=dev")
		if x.says == "" {
			if _, err := settings.Load(s); err != nil {
				t.Errorf("%v: %v", x.files, err)
			}
			continue
		}
		if p := problems(t, s); len(p) != 1 || !strings.Contains(filepath.ToSlash(p.Error()), x.says) {
			t.Errorf("%v: got %v, want %q", x.files, p, x.says)
		}
	}
}

// Where case counts, the file has another name than the one that is read.
func TestFileWithAnEndingInUpperCaseIsNotIgnored(t *testing.T) {
	for name, ending := range map[string]string{
		"mega.config.YAML": ".yaml", "mega.config.YML": ".yaml", "mega.config.dev.TOML": ".toml", "apps/web/app.config.JSON": ".json", "mega.config.Yaml": ".yaml",
	} {
		p := problems(t, source(folder(t, map[string]string{name: "["}), "MEGA_ENV=dev"))
		says := filepath.ToSlash(p.Error())
		if p[0].Code != "config.syntax" && !strings.HasSuffix(says, name+": is not read (rename it: its ending is "+ending+")") {
			t.Errorf("%s: got %s", name, says)
		}
	}
}

func TestAnAppsFileSpeaksOfTheAppAlone(t *testing.T) {
	p := problems(t, source(folder(t, map[string]string{"apps/web/app.config.yaml": "adr: ':1'\nops: {addr: ':1'}\ndatabase: {urll: x}\ntimeout: 5\n"})))
	for i, want := range []string{
		`unknown key "adr" below apps.web (did you mean addr?)`, `unknown key "ops" below apps.web (set it in mega.config)`,
		`unknown key "database.urll" below apps.web (did you mean database.url?)`, `apps.web.timeout: "5" has no unit`,
	} {
		if i >= len(p) || !strings.Contains(p[i].String(), want) || p[i].Origin.Line != i+1 {
			t.Errorf("problem %d: got %v, want %q", i, p, want)
		}
	}
}

func TestUnreadableFilesAreRefused(t *testing.T) {
	for says, make := range map[string]func(path string) error{
		"is a folder, not a file": func(path string) error { return os.Mkdir(path, 0o755) },
		"is a link to nothing":    func(path string) error { return os.Symlink("gone", path) },
		"cannot be read":          func(path string) error { return os.Symlink(filepath.Base(path), path) },
	} {
		for _, name := range []string{"mega.config.yaml", ".env"} {
			if name == ".env" && says == "is a folder, not a file" {
				continue // TestFolderNamedDotEnvIsIgnored
			}
			dir := t.TempDir()
			if err := make(filepath.Join(dir, name)); err != nil {
				if runtime.GOOS == "windows" { // where links take a privilege
					continue
				}
				t.Fatal(err)
			}
			p := problems(t, source(dir, "MEGA_ENV=dev"))
			if len(p) != 1 || p[0].Code != "config.file" || !strings.Contains(p.Error(), says) {
				t.Errorf("%s: got %v, want %q", name, p, says)
			}
		}
	}
}

// Virtual environments of Python often have this name.
func TestFolderNamedDotEnvIsIgnored(t *testing.T) {
	s := source(folder(t, map[string]string{".env/bin/activate": ""}), "MEGA_ENV=dev")
	if _, err := settings.Load(s); err != nil {
		t.Error(err)
	}
	s, _, _ = kept(t, s)
	if c, err := settings.Load(s); err != nil || len(c.Files()) != 0 {
		t.Errorf("the kept files: %v", err)
	}
}

func TestFolderNamedAsAFileHasAHint(t *testing.T) {
	dir := folder(t, map[string]string{"mega.config.yaml/x": ""})
	if p := problems(t, source(dir)); len(p) != 1 || !strings.Contains(p.Error(), "is a folder, not a file (remove it; a container runtime makes such a folder when the file to mount is missing)") {
		t.Errorf("got %v", p)
	}
}

// A folder that cannot be searched may hide a file that demands more of the locks
// than the defaults do. A link to itself is such a folder for every user, root
// included.
func TestFoldersThatCannotBeSearchedAreRefused(t *testing.T) {
	for name, start := range map[string]string{"loop": "loop/sub", "sub/loop": "sub/loop", "apps/web": "", "apps/loop": ""} {
		dir := folder(t, map[string]string{"go.mod": "module x\n", "sub/x": "", "apps/admin/app.config.yaml": "log_level: debug\n"})
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.Symlink(filepath.Base(path), path); err != nil {
			if runtime.GOOS == "windows" { // where links take a privilege
				continue
			}
			t.Fatal(err)
		}
		s, want := source(filepath.Join(dir, filepath.FromSlash(start))), path+": cannot be searched for configuration files: "
		p := problems(t, s)
		if len(p) != 1 || p[0].Code != "config.file" || !strings.Contains(p.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, p, want)
		}
		if s, _, _ := kept(t, s); problems(t, s).Error() != p.Error() {
			t.Errorf("%s: the kept files give %v", name, problems(t, s))
		}
	}
}

// A ConfigMap is a folder of links through a link that is swapped.
func TestFilesMayBeLinksAsKubernetesMountsThem(t *testing.T) {
	dir := folder(t, map[string]string{"..2026_01/mega.config.yaml": "name: old\n", "..2026_02/mega.config.yaml": "name: new\n"})
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..2026_01", "..data")
	link(filepath.Join("..data", "mega.config.yaml"), "mega.config.yaml")
	names := ""
	for range 2 {
		c, err := settings.Load(source(dir))
		if err != nil {
			t.Fatal(err)
		}
		names += c.Name + " "
		link("..2026_02", "..data_tmp")
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	if names != "old new " {
		t.Errorf("got %s", names)
	}
}

func TestDotEnvIsReadAsPeopleWriteIt(t *testing.T) {
	c, err := settings.Load(source(folder(t, map[string]string{".env": `# a comment
export MEGA_LIMITS_NOTE="two\nlines \"quoted\" $HOME # kept"   # let go
  MEGA_DATABASE_PASSWORD = 'pa$$\n#wd'
MEGA_NAME=shop # let go
MEGA_LIMITS_HOSTS=a , b
PRIVATE_KEY="-----BEGIN
MEGA_LOCK_TTL=1h
-----END"
lower-case=fine
MEGA_LOCK_WAIT="1s"
MEGA_CACHE_MAIN_URL=redis://:pw@h/0#a
MEGA_NATS_TOKEN=#s3cret # let go
MEGA_NATS_USER= # let go
`}), "MEGA_ENV=test"))
	if err != nil {
		t.Fatal(err)
	}
	section, _ := c.Section("", "limits")
	data, _ := c.Section("web", "database")
	for _, x := range []struct{ got, want any }{
		{section.(limits).Note, "two\nlines \"quoted\" $HOME # kept"}, {data.(database).Password.Reveal(), `pa$$\n#wd`}, {c.Name, "shop"},
		{strings.Join(section.(limits).Hosts, "+"), "a+b"}, {c.Lock.TTL, 10 * time.Second}, {c.Lock.Wait, time.Second},
		{c.Cache["main"].URL.Reveal(), "redis://:pw@h/0#a"}, {c.NATS.Token.Reveal(), "#s3cret"}, {c.NATS.User, ""}, {c.Origin("lock.wait").Line, 10},
	} {
		if x.got != x.want {
			t.Errorf("got %v, want %v", x.got, x.want)
		}
	}
}

func TestMistakesInDotEnvAreReportedWithTheirLine(t *testing.T) {
	for _, x := range []struct{ text, code, says string }{
		{"\nMEGA_LOK_TTL=5s\n", "config.unknown_key", ".env:2: MEGA_LOK_TTL: no key has this variable (did you mean MEGA_LOCK_TTL?)"},
		{"MEGA_LOCK_TTL=5\n", "config.no_unit", `.env:1: MEGA_LOCK_TTL: "5" has no unit (write 5s)`},
		{"MEGA_ENV=dev\n", "config.too_late", "export it"},
		{"MEGA_CONFIG=x\n", "config.too_late", "decides which files are read"},
		{"MEGA_NAME=a\nMEGA_NAME=b\n", "config.duplicate_key", ".env:2: MEGA_NAME: is set twice, first in line 1"},
		{"MEGA_NAME\n", "config.syntax", ".env:1: is not KEY=value"},
		{"MEGA_NAME: shop\n", "config.syntax", ".env:1: is not KEY=value"},
		{"OK=1\nMEGA_NAME=\"shop\nX=1\n", "config.syntax", `.env:2: the quote after "MEGA_NAME=" is not closed`},
		{"MEGA_NAME='a'b\n", "config.syntax", "text follows the quoted value"},
		{"MEGA_NAME=\xff\n", "config.file", ".env: is not UTF-8"},
	} {
		p := problems(t, source(folder(t, map[string]string{".env": x.text}), "MEGA_ENV=dev"))
		if len(p) != 1 || p[0].Code != x.code || !strings.Contains(p.Error(), x.says) {
			t.Errorf("%q: got %v, want %s %q", x.text, p, x.code, x.says)
		}
	}
}

func TestEachRepetitionInDotEnvNamesTheFirstLine(t *testing.T) {
	p := problems(t, source(folder(t, map[string]string{".env": "MEGA_NAME=a\nMEGA_NAME=b\nMEGA_NAME=c\n"}), "MEGA_ENV=dev"))
	if len(p) != 2 || !strings.Contains(p[1].String(), ".env:3: MEGA_NAME: is set twice, first in line 1") {
		t.Errorf("got %v", p)
	}
}

func TestSecretsAreRefusedOnTheCommandLine(t *testing.T) {
	for _, x := range []struct{ arg, code, says string }{
		{"database.password=hunter2", "config.secret_on_command_line", "--set database.password: all users of this machine can read a secret"},
		{"apps.web.database.password=hunter2", "config.secret_on_command_line", "set MEGA_APPS_WEB_DATABASE_PASSWORD"},
		{"cache.main.url=redis://u:hunter2@h", "config.secret_on_command_line", "set MEGA_CACHE_MAIN_URL"},
		{"cache.main.url=redis://h?password=hunter2", "config.secret_on_command_line", ""},
		{"nats.url=nats://hunter2@h", "config.secret_on_command_line", ""},
		{"nats.url=nats://a,nats://u:hunter2@h", "config.secret_on_command_line", ""},
		{"nats.token=hunter2", "config.secret_on_command_line", ""},
		{"lock.tll=5s", "config.unknown_key", `--set lock.tll: unknown key "lock.tll" (did you mean lock.ttl?)`},
		{"lock=5s", "config.unknown_key", `unknown key "lock" (it is a section; one of its keys is lock.driver)`},
		{"apps.web=5s", "config.unknown_key", `(it is a section; one of its keys is apps.web.addr)`},
		{"cache.mail=redis://h", "config.unknown_key", `(it is a section; one of its keys is cache.mail.url)`},
		{"apps.wbe.addr=:1", "config.unknown_app", "did you mean web?"},
		{"redis.url=redis://h", "config.unknown_key", `--set redis.url: unknown key "redis.url" (did you mean cache.main.url?)`},
		{"cache.*.url=redis://h", "config.unknown_key", ""},
		{"lock.ttl", "config.syntax", "write --set key=value"},
		{"lock.ttl=", "config.invalid", `"" is not a duration`},
		{"lock.driver=", "config.invalid", `"" is not one of auto`},
		{"ops.addr=", "config.missing", "is required"},
		{"=", "config.syntax", "write --set key=value"},
		{"=5", "config.syntax", "write --set key=value"},
		{"env=", "config.invalid", "--set env: is empty"},
	} {
		s := source("")
		s.Set = []string{x.arg}
		p := problems(t, s)
		if len(p) != 1 || p[0].Code != x.code || !strings.Contains(p.Error(), x.says) || strings.Contains(p.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %s %q", x.arg, p, x.code, x.says)
		}
	}
}

func TestTheCommandLineMayTakeAValueBack(t *testing.T) {
	s := source("", "MEGA_LOCK_REQUIRE=fleet", "MEGA_LIMITS_NOTE=x", "MEGA_LIMITS_HOSTS=x,y", "MEGA_DATABASE_PASSWORD=x", "MEGA_NATS_URL=nats://h", "MEGA_BUS_NATS_EVENT_PREFIX=e")
	s.Set = []string{"lock.require=", "limits.note=", "limits.hosts=", "database.password=", "nats.url=", "bus.nats.event_prefix="}
	c, err := settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	section, _ := c.Section("", "limits")
	data, _ := c.Section("web", "database")
	if l := section.(limits); c.Lock.Require != "" || l.Note != "" || len(l.Hosts) != 0 || data.(database).Password.Reveal() != "" || !c.NATS.URL.IsZero() || c.Bus.NATS.EventPrefix != "" {
		t.Errorf("got %+v, %+v, %+v", c.Lock, l, c.NATS)
	}
}

// What koanf's own providers make of an environment depends on the order of a
// map; what this package makes of it does not.
func TestOneEnvironmentIsOneConfiguration(t *testing.T) {
	dir := folder(t, map[string]string{"mega.config.yaml": sample["mega.config.yaml"], "apps/web/app.config.yaml": "timeout: 3s\n", ".env": "MEGA_LOCK_TTL=4s\n"})
	s := source(dir, "MEGA_LOCK_DRIVER=memory", "MEGA_LOCK_CACHE=main", "MEGA_CACHE_OTHER_URL=redis://o", "MEGA_ENV=dev", "MEGA_LIMITS_HOSTS=x,y")
	first, err := settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	bad := source(dir, "MEGA_LOCK=redis", "MEGA_LOCK_DRIVER=ipc", "MEGA_LOCK_TTL=5", "MEGA_CACHE_MAIN_URL=x", "MEGA_CACHE_URL=y", "MEGA_APPS_X_ADDR=:1")
	complaint := problems(t, bad).Error()
	for range 400 {
		c, err := settings.Load(s)
		if err != nil || !reflect.DeepEqual(c.Values(), first.Values()) || !reflect.DeepEqual(c.Cache, first.Cache) {
			t.Fatalf("the same environment gave %v, %v", c, err)
		}
		if again := problems(t, bad).Error(); again != complaint {
			t.Fatalf("the same mistakes were told as\n%s\nand as\n%s", complaint, again)
		}
		slices.Reverse(s.Environ)
		slices.Reverse(bad.Environ)
	}
}

func TestTwoKeysWithOneVariableAreRefused(t *testing.T) {
	type size struct {
		Size int `key:"size"`
	}
	type pool struct {
		PoolSize int  `key:"pool_size"`
		Pool     size `key:"pool"`
	}
	type body struct {
		Limit int `key:"limit"`
	}
	for says, section := range map[string]settings.Section{
		"has the variable MEGA_DATA_POOL_SIZE, as data.pool_size has":           {Name: "data", Type: reflect.TypeFor[pool]()},
		"has the variable MEGA_APPS_WEB_BODY_LIMIT, as apps.web.body_limit has": {Name: "body", App: "web", Type: reflect.TypeFor[body]()},
	} {
		_, err := settings.Load(settings.Source{Apps: []string{"web"}, Sections: []settings.Section{section}})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func TestReportedMistakesAreBounded(t *testing.T) {
	for _, x := range []struct{ file, head, line, code string }{
		{yamlFile, "", "key%d: 1\n", "config.unknown_key"},
		{yamlFile, "apps:\n", "  app%d: {}\n", "config.unknown_app"},
		{yamlFile, "cache:\n", "  c%d: {url: x}\n", "config.invalid"},
		{yamlFile, "cache:\n", "  c%d: {url: 1}\n", "config.invalid"},
		{yamlFile, "", "lock: {} # %d\n", "config.duplicate_key"},
		{".env", "", "MEGA_KEY%d=1\n", "config.unknown_key"},
		{".env", "", "MEGA_CACHE_C%d_URL=x\n", "config.invalid"},
		{".env", "", "MEGA_NAME= # %d\n", "config.duplicate_key"},
	} {
		var b strings.Builder
		b.WriteString(x.head)
		for i := range 24_000 {
			fmt.Fprintf(&b, x.line, i)
		}
		p := problems(t, source(folder(t, map[string]string{x.file: b.String()}), "MEGA_ENV=dev"))
		known := slices.ContainsFunc(p, func(p settings.Problem) bool { return p.Code == x.code })
		if len(p) > 60 || !known {
			t.Errorf("%q: %d problems, the first is %v, want a bounded number of %s", x.line, len(p), p[0], x.code)
		}
	}
}

func TestAdviceForAValueOfAnotherTypeIsLegal(t *testing.T) {
	for _, text := range []string{"lock: {ttl: true}", "lock: {ttl: 2024-01-01}", "log: {level: 1}", "cache: {main: {url: 6379}}"} {
		p := problems(t, settings.Source{Dir: folder(t, map[string]string{yamlFile: text + "\n"})})
		if len(p) != 1 || p[0].Code != "config.invalid" || p[0].Hint != "" {
			t.Errorf("%s: got %s, want no advice", text, p.Error())
		}
	}
}
