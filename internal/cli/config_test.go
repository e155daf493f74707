package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/cli"
	"github.com/megaframework/mega/internal/failure"
)

// shelf is a section of the program under test.
type shelf struct {
	Stock int `key:"stock" default:"10" min:"0" doc:"pieces of each product"`
}

// bench is a folder with a configuration, and a program that reads it.
type bench struct {
	dir     string
	environ []string
}

func newBench(t *testing.T, yaml string, environ ...string) bench {
	t.Helper()
	dir := t.TempDir()
	// Processes of other tests, or of this user, are not found from here.
	b := bench{dir, append(environ, "MEGA_ENV=production", "TMPDIR="+dir)}
	if yaml != "" {
		if err := os.WriteFile(filepath.Join(b.dir, "mega.config.yaml"), []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b bench) run(line string, more ...mega.Option) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	p := cli.Process{Args: append([]string{"shop"}, strings.Fields(line)...), Environ: b.environ, Dir: b.dir, Stdout: &out, Stderr: &err}
	status = cli.Run(p, append(more, mega.Config[shelf]("shelf"),
		mega.App("web", mega.Routes(func(r megactx.Router) { r.Get("/", func(*megactx.Ctx) error { return nil }) })))...)
	return status, out.String(), err.String()
}

const yaml = `name: shop
lock:
  ttl: 20s
shelf:
  stock: 5
`

func TestConfigurationIsPrintedWithItsOrigins(t *testing.T) {
	b := newBench(t, yaml, "MEGA_LOCK_TTL=30s", "MEGA_CACHE_MAIN_URL=redis://me:geheim@localhost:6379/0")
	status, stdout, stderr := b.run("config print --origin --set log.level=warn")
	for _, want := range []string{
		"lock.ttl  30s  env MEGA_LOCK_TTL, hides mega.config.yaml:3",
		"shelf.stock  5  mega.config.yaml:5",
		"log.level  warn  --set log.level",
		"lock.wait  5s  default",
		"cache.main.url  redis://***@localhost:6379/0  env MEGA_CACHE_MAIN_URL",
	} {
		if !strings.Contains(squeezed(stdout), "\n"+want+"\n") {
			t.Errorf("%q is not told:\n%s%s", want, squeezed(stdout), stderr)
		}
	}
	if status != failure.ExitOK || strings.Contains(stdout, "geheim") {
		t.Errorf("exit status %d\n%s", status, stdout)
	}
	if _, stdout, _ := b.run("config print shelf"); stdout != "shelf.stock  5\n" {
		t.Errorf("of a section: %q", stdout)
	}
}

// squeezed is a table without its alignment.
func squeezed(page string) string {
	for strings.Contains(page, "   ") {
		page = strings.ReplaceAll(page, "   ", "  ")
	}
	return page
}

func TestDocumentsOfTheConfiguration(t *testing.T) {
	b := newBench(t, yaml)
	for _, x := range []struct{ line, want string }{
		{"config print shelf --json", `{
			"name": "shop", "env": "production", "files": [{"path": "mega.config.yaml", "keys": 3}],
			"values": [{"key": "shelf.stock", "value": "5", "origin": "mega.config.yaml:5", "default": false}]}`},
		{"config check --json", `{"ok": true, "env": "production", "files": [{"path": "mega.config.yaml", "keys": 3}], "set": 4}`},
		{"config explain shelf.stock --json --set shelf.stock=7", `{
			"key": "shelf.stock", "doc": "pieces of each product", "takes": "a whole number", "value": "7", "set": true,
			"origin": "--set shelf.stock", "shadows": ["mega.config.yaml:5"], "default": "10", "variable": "MEGA_SHELF_STOCK",
			"min": "0", "live": false, "secret": false}`},
		{"config explain shelf --json", `[{
			"key": "shelf.stock", "doc": "pieces of each product", "takes": "a whole number", "value": "5", "set": true,
			"origin": "mega.config.yaml:5", "default": "10", "variable": "MEGA_SHELF_STOCK", "min": "0", "live": false, "secret": false}]`},
	} {
		status, stdout, stderr := b.run(x.line)
		var got, want any
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || status != failure.ExitOK {
			t.Errorf("%s: exit status %d, %v: %s%s", x.line, status, err, stdout, stderr)
			continue
		}
		if err := json.Unmarshal([]byte(x.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %s\nwant %s", x.line, stdout, x.want)
		}
	}
}

func TestKeyIsExplained(t *testing.T) {
	const want = `lock.ttl: how long others wait after a crash
  value  20s  (mega.config.yaml:3)
  default  10s
  takes  a duration such as 10s
  from  100ms
  to  24h
  variable  MEGA_LOCK_TTL

selected for the lock: memory (neither a cache nor a cluster is configured)
`
	b := newBench(t, yaml)
	if status, stdout, stderr := b.run("config explain lock.ttl"); status != failure.ExitOK || !strings.HasPrefix(squeezed(stdout), want) {
		t.Errorf("exit status %d, got\n%s%s\nwant\n%s", status, squeezed(stdout), stderr, want)
	}
	for line, says := range map[string]string{
		"config explain log.level":          "config reload",
		"config explain nats.password":      "refused on a command line",
		"config explain lock.cache":         "value  not set",
		"config explain apps.web.log_level": "inherits  log.level",
		"config explain bus.driver":         "selected for the bus: memory",
		"config explain limit.driver":       "selected for the limit: memory (the locks use it)",
	} {
		if _, stdout, stderr := b.run(line); !strings.Contains(squeezed(stdout), says) {
			t.Errorf("%s does not say %q:\n%s%s", line, says, stdout, stderr)
		}
	}
}

// What would be chosen is told for a configuration that is not there yet, also
// if it would stop the boot.
func TestChoiceIsExplainedForOtherValues(t *testing.T) {
	b := newBench(t, "")
	for _, x := range []struct{ set, says string }{
		{"--set cache.main.url=redis://localhost:6379/0", "selected for the lock: redis (a cache is configured)"},
		{"--set lock.require=fleet", "the boot stops: "},
		{"--set lock.driver=redis", "(lock.no_cache)"},
	} {
		if status, stdout, stderr := b.run("config explain lock.driver " + x.set); status != failure.ExitOK || !strings.Contains(stdout, x.says) {
			t.Errorf("%s: exit status %d, want %q:\n%s%s", x.set, status, x.says, stdout, stderr)
		}
	}
	_, stdout, _ := b.run("config explain lock.driver --json --set lock.require=fleet")
	var doc struct {
		Decision struct {
			Chosen  string
			Refused struct{ Code string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || doc.Decision.Chosen != "memory" || doc.Decision.Refused.Code != "lock.scope_too_small" {
		t.Errorf("got %+v, %v: %s", doc, err, stdout)
	}
}

// The boot would refuse these configurations without a call of any server.
func TestCheckReportsADriverThatCannotBeSelected(t *testing.T) {
	for keys, code := range map[string]string{
		"lock.driver=redis": "lock.no_cache", "lock.require=fleet": "lock.scope_too_small", "bus.driver=nats": "bus.no_server",
	} {
		status, stdout, stderr := newBench(t, "name: shop\n").run("config check --set " + keys)
		if status != failure.ExitConfig || stdout != "" || !strings.Contains(stderr, code) {
			t.Errorf("%s: exit status %d: %s%s", keys, status, stdout, stderr)
		}
	}
}

func TestWrongConfigurationIsCheckedWithoutABoot(t *testing.T) {
	b := newBench(t, "lock:\n  ttl: 5\n  dirver: redis\n")
	for _, verb := range []string{"config check", "config print", "config explain lock.ttl", "lock ls", "config reload"} {
		status, stdout, stderr := b.run(verb + " --json")
		var f struct {
			Code     string
			Problems []struct{ Code, Origin, Hint string }
		}
		if err := json.Unmarshal([]byte(stderr), &f); err != nil || status != failure.ExitConfig || stdout != "" || len(f.Problems) != 2 {
			t.Errorf("%s: exit status %d, %v: %s%s", verb, status, err, stdout, stderr)
			continue
		}
		if f.Problems[1].Origin != "mega.config.yaml:3" || !strings.Contains(f.Problems[1].Hint, "lock.driver") {
			t.Errorf("%s: got %+v", verb, f)
		}
	}
	if status, stdout, stderr := newBench(t, yaml).run("config check"); status != failure.ExitOK ||
		stdout != "The configuration is valid: env production, 4 keys set.\n  mega.config.yaml  3 keys\n" {
		t.Errorf("of a right one: exit status %d: %s%s", status, stdout, stderr)
	}
}

func TestMissingKeyIsExplained(t *testing.T) {
	type mail struct {
		Host string `key:"host" required:"true" doc:"the server of outgoing mail"`
		User string `key:"user" required:"true"`
	}
	b, news := newBench(t, "mail: {user: ''}\n"), mega.App("news", mega.Config[mail]("mail"))
	const want = `mail.host: the server of outgoing mail
  value  not set
  takes  text
  variable  MEGA_MAIL_HOST
  note  required
`
	status, stdout, stderr := b.run("config explain mail.host", news)
	if status != failure.ExitConfig || squeezed(stdout) != want || !strings.Contains(stderr, "MEGA_MAIL_HOST") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	if _, stdout, _ := b.run("config explain apps.news.mail.host --json", news); !strings.Contains(stdout, `"set": false`) {
		t.Errorf("the key of the app: %s", stdout)
	}
	for _, key := range []string{"mail.user", "lock.ttl", "mail.hots"} { // is set to an empty text; has a value that is not known; is no key
		if status, stdout, _ := b.run("config explain "+key, news); status != failure.ExitConfig || stdout != "" {
			t.Errorf("%s: exit status %d: %s", key, status, stdout)
		}
	}
}

func TestUnknownKeySuggestsTheSimilarOne(t *testing.T) {
	b := newBench(t, yaml)
	for line, says := range map[string]string{
		"config explain lock.tll": "lock.ttl", "config print shelv": "shelf", "config explain": "cli.missing_argument",
		"config explain lock.ttl now": `"now"`, "config": "check, explain, print, reload, schema", "config show": "Unknown verb",
	} {
		if status, stdout, stderr := b.run(line); status != failure.ExitUsage || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit status %d, want %q: %s%s", line, status, says, stdout, stderr)
		}
	}
}

func TestSchemaKnowsTheProgramsOwnSections(t *testing.T) {
	status, stdout, stderr := newBench(t, "").run("config schema")
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal([]byte(stdout), &schema); err != nil || status != failure.ExitOK || schema.Properties["shelf"] == nil {
		t.Errorf("exit status %d, %v: %s%s", status, err, stdout, stderr)
	}
}

func TestKeysAreCompleted(t *testing.T) {
	b := newBench(t, yaml)
	for _, verb := range []string{"explain", "print"} {
		if _, stdout, _ := b.run("__complete config " + verb + " shelf."); !strings.Contains(stdout, "shelf.stock\n") {
			t.Errorf("%s: got %s", verb, stdout)
		}
	}
}

func TestValuesOfFlagsAreCompleted(t *testing.T) {
	b := newBench(t, yaml)
	for line, want := range map[string]string{
		"--only w": "web\n", "serve --only w": "web\n", "boot --set shelf.": "shelf.stock=\n", "serve --trace f": "fx\n",
	} {
		if _, stdout, _ := b.run("__complete " + line); !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: got %s", line, stdout)
		}
	}
}

// The file may be named, in the place of those that are found.
func TestConfigFlagNamesTheFile(t *testing.T) {
	b := newBench(t, yaml)
	other := filepath.Join(t.TempDir(), "mega.config.toml")
	if err := os.WriteFile(other, []byte("[shelf]\nstock = 99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"--config " + other + " config print shelf", "config print shelf --config=" + other} {
		if _, stdout, stderr := b.run(line); stdout != "shelf.stock  99\n" {
			t.Errorf("%s: got %s%s", line, stdout, stderr)
		}
	}
}
