package settings_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/settings"
)

// Whatever a password is made of, neither the URL nor the complaint about it
// shows it.
func FuzzPasswordsInURLs(f *testing.F) {
	for _, password := range []string{"hunter22", "p@ss/word", "a:b:c:d:e", "x?y#z@w1", "%zz%zz%zz", "new\nline", "日本語パス"} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		if len(password) < 6 || strings.Contains("redis://user:***@host:6379/0 is not a URL such as redis://localhost:6379/0", password) {
			return // it would be found by chance
		}
		for _, text := range []string{"redis://user:" + password + "@host:6379/0", "nats://" + password + "@host:4222", "nats://host,nats://user:" + password + "@other", "user:" + password + "@host"} {
			if strings.HasPrefix(text, "nats://"+password) && strings.ContainsAny(password, ":/?#@") {
				continue // it is no token, but a user and a password, or a host and a path
			}
			if strings.HasPrefix(text, "user:") && strings.Contains(password, "://") || strings.HasPrefix(text, "user://") {
				continue // it is a URL, of which this is the user
			}
			var u config.URL
			shown := fmt.Sprint(u.UnmarshalText([]byte(text)), u)
			if strings.Contains(shown, password) || strings.Contains(shown, strings.Trim(fmt.Sprintf("%q", password), `"`)) {
				t.Errorf("%q shows the password %q", shown, password)
			}
		}
	})
}

// No environment makes loading panic, and what it cannot use it names.
func FuzzEnvironment(f *testing.F) {
	f.Add("LOCK_TTL", "5s")
	f.Add("CACHE_MAIN_URL", "redis://a,b/c")
	f.Add("CACHE__URL", "redis://a")
	f.Add("LOCK_REDIS_KEY", "%s")
	f.Add("APPS_MAIN_ADDR", "[::1]:0")
	f.Add("APPS_MAIN_BODY_LIMIT", "1.5MiB")
	f.Add("APPS_MAIN_LOCALES", "ko, en")
	f.Fuzz(func(t *testing.T, name, value string) {
		if strings.ContainsAny(name, "=\x00") || name == "CONFIG" {
			return
		}
		_, err := settings.Load(settings.Source{Apps: []string{"main"}, Environ: []string{"MEGA_" + name + "=" + value}})
		if err != nil && !strings.Contains(err.Error(), "MEGA_"+name) {
			t.Errorf("%q = %q: %v does not name the variable", name, value, err)
		}
	})
}

// Nor does any command line.
func FuzzCommandLine(f *testing.F) {
	for _, arg := range []string{"lock.ttl=5s", "a", "=", "apps.main.addr=", "cache.x.url=redis://h", "apps..addr=1", "...=1", "apps.main=1", "\x00=\xff"} {
		f.Add(arg)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		_, err := settings.Load(settings.Source{Apps: []string{"main"}, Set: []string{arg}})
		if _, ok := errors.AsType[settings.Problems](err); err != nil && !ok {
			t.Errorf("%q: %v", arg, err)
		}
	})
}

// Whatever is in a file, it is loaded, or what is wrong is told with a line that
// the file has.
func FuzzFiles(f *testing.F) {
	names := []string{yamlFile, tomlFile, jsonFile, ".env"}
	for i, name := range names {
		f.Add(i, sample[name])
		for _, m := range mistakes {
			if m.file == name && len(m.text) < 4096 {
				f.Add(i, m.text)
			}
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, format int, text string) {
		name := names[max(0, format)%len(names)]
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(path) }()
		c, err := settings.Load(source(dir, "MEGA_ENV=dev"))
		p, ok := errors.AsType[settings.Problems](err)
		if err != nil && !ok {
			t.Fatalf("%q: %v", text, err)
		}
		within := func(o settings.Origin) bool { return o.Line >= 1 && o.Line <= 1+strings.Count(text, "\n") }
		for _, problem := range p {
			if problem.Origin.File == name && problem.Code != "config.file" && !within(problem.Origin) {
				t.Errorf("%q: %v is not in the file", text, problem)
			}
		}
		for i := 0; err == nil && i < len(c.Values()); i++ {
			if v := c.Values()[i]; v.Origin.File == name && !within(v.Origin) {
				t.Errorf("%q: %s is from line %d", text, v.Key, v.Origin.Line)
			}
		}
	})
}
