package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/megaframework/mega/config"
)

// Whatever a password is made of, neither the URL nor the complaint about it
// shows it.
func FuzzPasswordsInURLs(f *testing.F) {
	for _, password := range []string{"hunter22", "p@ss/word", "a:b:c:d:e", "x?y#z@w1", "%zz%zz%zz", "new\nline", "日本語パス"} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		if len(password) < 6 || strings.Contains("redis://user:***@host:6379/0 is not a URL such as localhost", password) {
			return // it would be found by chance
		}
		text := "redis://user:" + password + "@host:6379/0"
		var u config.URL
		shown := fmt.Sprint(u.UnmarshalText([]byte(text)), u)
		if strings.Contains(shown, password) || strings.Contains(shown, strings.Trim(fmt.Sprintf("%q", password), `"`)) {
			t.Errorf("%q shows the password %q", shown, password)
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
	f.Fuzz(func(t *testing.T, name, value string) {
		if strings.ContainsAny(name, "=\x00") {
			return
		}
		_, err := config.Load(config.Source{Apps: []string{"main"}, Environ: []string{"MEGA_" + name + "=" + value}})
		if err != nil && !strings.Contains(err.Error(), "MEGA_"+name) {
			t.Errorf("%q = %q: %v does not name the variable", name, value, err)
		}
	})
}
