package settings_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/settings"
)

// dsn refuses every text, and quotes it.
type dsn string

func (*dsn) UnmarshalText(text []byte) error {
	return errors.New(`parse "` + string(text) + `": no port`)
}

func TestNoErrorShowsACredential(t *testing.T) {
	type mirrors struct {
		URLs []string `key:"urls"`
		DSN  dsn      `key:"dsn"`
	}
	const redis = "redis://:hunter2@redis.example.com:6379/0"
	for name, x := range map[string]struct {
		file, text, variable, argument string
		code, says                     string
	}{
		"a URL in the place of a key":        {file: yamlFile, text: "cache:\n  main:\n    " + redis + ":\n", code: "config.unknown_key", says: `"redis://***@redis.example.com:6379/0" contains a dot`},
		"a URL in the place of an alias":     {file: jsonFile, text: `{"cache": {"` + redis + `": {}}}`, code: "config.unknown_key", says: "contains a dot"},
		"URLs in the place of a list":        {file: yamlFile, text: "mirrors: {urls: 'https://u:hunter2@a,https://u:hunter2@b'}\n", code: "config.invalid", says: `write a list: ["https://***@a", "https://***@b"]`},
		"a line after a TOML table":          {file: tomlFile, text: "[nats] password: hunter2\n", code: "config.syntax", says: "\n  [nats] •\n"},
		"a URL after a TOML table":           {file: tomlFile, text: "[cache.main] url: '" + redis + "'\n", code: "config.syntax", says: "\n  [cache.main] •\n"},
		"a password without a host":          {variable: "MEGA_NATS_URL=nats://ann:hunter2", code: "config.invalid", says: "nats://*** is not a host or host:port; an @ and a host follow a password"},
		"a password alone":                   {variable: "MEGA_CACHE_MAIN_URL=redis://:hunter2/0", code: "config.invalid", says: "redis://*** is not a host or host:port"},
		"a comma in a password":              {variable: "MEGA_NATS_URL=nats://ann:hunter2,x@h:4222", code: "config.invalid", says: "nats://***@h:4222: a part before the last @ is not a host or host:port; write %2C for a comma in a password"},
		"a URL in the place of an address":   {variable: "MEGA_OPS_ADDR=" + redis, code: "config.invalid", says: `"redis://***@redis.example.com:6379/0" is not an address`},
		"a URL in the place of an alias set": {variable: "MEGA_LOCK_CACHE=" + redis, code: "config.unknown_cache", says: "an alias is a lower-case word"},
		"an error of a type of the program":  {variable: "MEGA_MIRRORS_DSN=" + redis, code: "config.invalid", says: `parse "redis://***@redis.example.com:6379/0": no port`},
		"an argument with a colon":           {argument: "cache.main.url:" + redis, code: "config.syntax", says: "--set cache.main.url…: is not key=value"},
		"an argument with a colon and an =":  {argument: "nats.password:hunter2=", code: "config.syntax", says: "--set nats.password…: is not key=value"},
		"a list on the command line":         {argument: "mirrors.urls=https://a,https://u:hunter2@b", code: "config.secret_on_command_line"},
	} {
		s := settings.Source{Sections: []settings.Section{{Name: "mirrors", Type: reflect.TypeFor[mirrors](), Site: "mirrors.go:1"}}}
		if x.file != "" {
			s.Dir = folder(t, map[string]string{x.file: x.text})
		}
		if x.variable != "" {
			s.Environ = []string{x.variable}
		}
		if x.argument != "" {
			s.Set = []string{x.argument}
		}
		p := problems(t, s)
		text := p.Error()
		if len(p) != 1 || p[0].Code != x.code || !strings.Contains(text, x.says) || strings.Contains(strings.ToLower(text), "hunter2") {
			t.Errorf("%s: got %s, want %s with %q and without the password", name, text, x.code, x.says)
		}
	}
}

func TestValuesOfAListShowNoCredential(t *testing.T) {
	type mirrors struct {
		URLs []string `key:"urls"`
	}
	for text, want := range map[string]string{
		`a,https://u:hun"ter2@b`: "a,https://***@b",
		"https://u:hun,ter2@b":   "https://***@b", // the comma of a password
	} {
		c, err := settings.Load(settings.Source{
			Sections: []settings.Section{{Name: "mirrors", Type: reflect.TypeFor[mirrors](), Site: "mirrors.go:1"}}, Environ: []string{"MEGA_MIRRORS_URLS=" + text},
		})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := c.Explain("mirrors.urls"); err != nil || e.Value != want {
			t.Errorf("%s: got %s, %v, want %s", text, e.Value, err, want)
		}
	}
}
