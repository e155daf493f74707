package settings_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/settings"
)

// rewritten loads one text of mega.config.yaml and reloads with another.
func rewritten(t *testing.T, before, after string, environ ...string) (old, next *settings.Config, changes []config.Change, err error) {
	t.Helper()
	dir := folder(t, map[string]string{"mega.config.yaml": before})
	s := source(dir, environ...)
	old, err = settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mega.config.yaml"), []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
	next, changes, err = settings.Reload(old, s)
	return old, next, changes, err
}

func TestReloadAppliesLiveKeysAndListsTheRest(t *testing.T) {
	old, next, changes, err := rewritten(t,
		"lock: {ttl: 1s, wait: 7s}\nlog: {level: info}\ncache: {main: {url: 'redis://u:one@h'}, other: {url: 'redis://o'}}\napps: {web: {timeout: 1s, body_limit: 2MiB, locales: [ko]}}\nlimits: {hosts: [a]}\n",
		"log: {level: debug}\nlock: {ttl: 2s}\ncache: {main: {url: 'redis://u:two@h'}}\napps: {web: {body_limit: 3MiB, locales: [ko, en], host: example.org}}\nlimits: {hosts: ['a']}\n")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, c := range changes {
		live := map[bool]string{true: " live", false: ""}[c.Live]
		told = append(told, c.Key+": "+c.Old+" -> "+c.New+" ("+c.Origin+")"+live)
	}
	want := []string{
		"apps.web.addr: 127.0.0.1:8080 -> 127.0.0.1:8081 (default (address of apps.admin))",
		"apps.web.body_limit: 2MiB -> 3MiB (mega.config.yaml:4) live",
		"apps.web.host:  -> example.org (mega.config.yaml:4)",
		"apps.web.locales: ko -> ko,en (mega.config.yaml:4)",
		"apps.web.timeout: 1s -> 30s (default) live",
		"cache.main.url: redis://***@h -> redis://***@h (mega.config.yaml:3)",
		"cache.other.url: redis://o ->  (not set)",
		"lock.ttl: 1s -> 2s (mega.config.yaml:2)",
		"lock.wait: 7s -> 5s (default)",
		"log.level: info -> debug (mega.config.yaml:1) live",
	}
	if got := strings.Join(told, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("told\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	web := next.Apps["web"]
	if next.Log.Level != "debug" || next.Apps["admin"].LogLevel != "debug" || web.BodyLimit != 3<<20 || web.Timeout != 30*time.Second {
		t.Errorf("what is live was not taken over: %+v", next)
	}
	if next.Lock.TTL != time.Second || next.Lock.Wait != 7*time.Second || len(next.Cache) != 2 || !strings.Contains(next.Cache["main"].URL.Reveal(), "one") ||
		web.Host != "" || web.Addr != "127.0.0.1:8080" || len(web.Locales) != 1 {
		t.Errorf("what takes a restart was taken over: %+v", next)
	}
	if old.Log.Level != "info" || old.Apps["web"].BodyLimit != 2<<20 {
		t.Error("the old configuration has changed")
	}
	if o := next.Origin("limits.hosts"); o.Line != 5 {
		t.Errorf("a value that is the same is from %v", o)
	}
}

func TestReloadKeepsTheOldWhereAnythingIsWrong(t *testing.T) {
	old, next, changes, err := rewritten(t, "log: {level: info}\n", "log: {level: debug}\nlok: {ttl: 5s}\n")
	if p, ok := errors.AsType[settings.Problems](err); !ok || len(p) != 1 || next != old || changes != nil {
		t.Errorf("got %v, %v, the same: %v", err, changes, next == old)
	}
}

func TestReloadOfTheSameChangesNothing(t *testing.T) {
	_, next, changes, err := rewritten(t, "log: {level: warn}\n", "# moved\nlog: {level: warn}\n", "MEGA_LOCK_TTL=2s")
	if err != nil || len(changes) != 0 || next.Origin("log.level").Line != 2 || next.Lock.TTL != 2*time.Second {
		t.Errorf("got %v, %v, %v", changes, err, next.Origin("log.level"))
	}
}

func TestStrongerLayerHidesAChange(t *testing.T) {
	_, next, changes, err := rewritten(t, "log: {level: info}\n", "log: {level: debug}\n", "MEGA_LOG_LEVEL=error")
	if err != nil || len(changes) != 0 || next.Log.Level != "error" {
		t.Errorf("got %v, %v, %s", changes, err, next.Log.Level)
	}
}

func TestAnAppTakesItsOwnLogLevelBack(t *testing.T) {
	_, next, changes, err := rewritten(t, "apps: {web: {log_level: debug}}\n", "log: {level: error}\n")
	if err != nil || len(changes) != 2 || next.Apps["web"].LogLevel != "error" {
		t.Errorf("got %v, %v, %s", changes, err, next.Apps["web"].LogLevel)
	}
}
