package settings_test

import (
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/settings"
)

func TestAnAppWithoutAnAddressGetsOne(t *testing.T) {
	for _, x := range []struct{ file, web, admin string }{
		{"", "127.0.0.1:8080 default", "127.0.0.1:8081 default"},
		{"apps: {admin: {prefix: /admin}}\n", "127.0.0.1:8080 default", "127.0.0.1:8080 default (address of apps.web)"},
		{"apps: {web: {addr: ':9'}, admin: {host: admin.example.org}}\n", ":9 mega.config.yaml:1", ":9 default (address of apps.web)"},
		{"apps: {web: {addr: '127.0.0.1:0'}, admin: {prefix: /admin}}\n", "127.0.0.1:0 mega.config.yaml:1", "127.0.0.1:0 default (address of apps.web)"},
		{"apps: {web: {prefix: /web}}\n", "127.0.0.1:8081 default (address of apps.admin)", "127.0.0.1:8081 default"},
		{"apps: {web: {prefix: /web}, admin: {prefix: /admin}}\n", "127.0.0.1:8080 default", "127.0.0.1:8080 default"},
		{"apps: {web: {addr: ''}}\n", "127.0.0.1:8080 default", "127.0.0.1:8081 default"},
	} {
		c, err := settings.Load(source(folder(t, map[string]string{"mega.config.yaml": x.file})))
		if err != nil {
			t.Errorf("%s: %v", x.file, err)
			continue
		}
		got := [2]string{}
		for i, app := range []string{"web", "admin"} {
			got[i] = string(c.Apps[app].Addr) + " " + c.Origin("apps."+app+".addr").String()
		}
		if got != [2]string{x.web, x.admin} {
			t.Errorf("%s: got %q, want %q and %q", x.file, got, x.web, x.admin)
		}
	}
}

func TestTwoCannotListenOnOneAddress(t *testing.T) {
	for _, x := range []struct{ file, says string }{
		{"apps:\n  web: {addr: ':9'}\n  admin: {addr: ':9'}\n", "mega.config.yaml:3: apps.admin.addr: :9 (mega.config.yaml:3) and apps.web.addr = :9 (mega.config.yaml:2) use the same address"},
		{"apps: {web: {addr: '127.0.0.1:8081'}}\n", "mega.config.yaml:1: apps.web.addr: 127.0.0.1:8081 (mega.config.yaml:1) and apps.admin.addr = 127.0.0.1:8081 (default)"},
		{"apps: {web: {addr: ':9', prefix: /a}, admin: {addr: ':9', prefix: /a}}\n", "a host or a prefix"},
		{"apps: {web: {addr: '127.0.0.1:0', prefix: /a}, admin: {addr: '127.0.0.1:0', prefix: /a}}\n", "use the same address"},
		{"apps: {web: {addr: ':9'}, admin: {addr: '127.0.0.1:9', prefix: /a}}\n", "both the same address"},
		{"apps: {web: {addr: 'localhost:9'}, admin: {addr: '127.0.0.1:9', prefix: /a}}\n", "use the same address"},
		{"apps: {web: {addr: '[::]:9'}, admin: {addr: '10.0.0.1:9'}}\n", "use the same address"},
		{"apps: {web: {addr: ':9'}}\nops: {addr: ':9'}\n", "ops.addr: :9 (mega.config.yaml:2) and apps.web.addr = :9"},
		{"apps: {web: {addr: ':9'}, admin: {addr: ':9', prefix: /admin}}\n", ""},
		{"apps: {web: {addr: ':9', host: a.example.org}, admin: {addr: ':9', host: b.example.org}}\n", ""},
		{"apps: {web: {addr: '127.0.0.1:0'}, admin: {addr: '127.0.0.1:0'}}\nops: {addr: '127.0.0.1:0'}\n", ""},
		{"apps: {web: {addr: '10.0.0.1:9'}, admin: {addr: '10.0.0.2:9'}}\n", ""},
		{"apps: {web: {addr: '127.0.0.1:9090'}}\n", ""}, // nobody asked for 9090 for ops
	} {
		s := source(folder(t, map[string]string{"mega.config.yaml": x.file}))
		if x.says == "" {
			if _, err := settings.Load(s); err != nil {
				t.Errorf("%s: %v", x.file, err)
			}
			continue
		}
		if p := problems(t, s); len(p) != 1 || p[0].Code != "config.address_twice" || !strings.Contains(p.Error(), x.says) {
			t.Errorf("%s: got %v, want %q", x.file, p, x.says)
		}
	}
}

// An app whose address, host or prefix is illegal has none of its own yet: a
// conflict of its default address would be a second report of one mistake.
func TestIllegalAddressHasNoConflict(t *testing.T) {
	for _, file := range []string{
		"apps: {web: {addr: nowhere}, admin: {addr: ':8080'}}\n",
		"apps: {web: {addr: ':9', prefix: admin}, admin: {addr: ':9'}}\n",
		"apps: {web: {prefix: admin}, admin: {addr: ':8080'}}\n",
		"apps: {web: {addr: ':8080'}, admin: {prefix: 'a b'}}\nops: {addr: '127.0.0.1:8081'}\n",
		"apps: {web: {addr: '127.0.0.1:9090'}}\nops: {addr: here}\n",
	} {
		if p := problems(t, source(folder(t, map[string]string{"mega.config.yaml": file}))); len(p) != 1 || p[0].Code != "config.invalid" {
			t.Errorf("%s: got %v, want one problem", file, p)
		}
	}
	p := problems(t, source(folder(t, map[string]string{"mega.config.yaml": "apps: {web: {addr: ':9'}, admin: {addr: ':9'}}\nops: {addr: here}\n"})))
	if len(p) != 2 {
		t.Errorf("got %v, want the conflict of the others, too", p)
	}
}

func TestConflictOfDefaultAddressesNamesTheKey(t *testing.T) {
	p := problems(t, settings.Source{Apps: []string{"main", "a", "b"}, Environ: []string{"MEGA_APPS_A_PREFIX=/x", "MEGA_APPS_B_PREFIX=/x"}})
	if len(p) != 1 || !strings.HasPrefix(p.Error(), "apps.a.addr: 127.0.0.1:8080") {
		t.Errorf("got %v", p)
	}
}

func TestKeysThatContradictEachOtherAreRefused(t *testing.T) {
	for _, x := range []struct{ file, says string }{
		{"nats: {token: t, user: u}\n", "nats.token: nats.user (mega.config.yaml:1) sets credentials for NATS, too"},
		{"nats: {creds_file: a, nkey_file: b}\n", "keep one of them"},
		{"nats: {url: 'nats://u:p@h', user: u, password: q}\n", "nats.user: nats.url (mega.config.yaml:1) sets credentials for NATS, too"},
		{"nats: {url: 'nats://a,nats://t@b', token: u}\n", "nats.token: nats.url (mega.config.yaml:1) sets credentials for NATS, too"},
		{"nats: {password: p}\n", "nats.password: has no effect without nats.user (set MEGA_NATS_USER)"},
		{"nats: {tls: {cert: a}}\n", "has no effect without nats.tls.key"},
		{"nats: {tls: {key: a}}\n", "has no effect without nats.tls.cert"},
		{"lock: {cache: main}\n", `unknown cache "main"`},
		{"lock: {cache: maim}\ncache: {main: {url: 'redis://h'}}\n", "configured: main"},
		{"lock: {redis: {key: '{%s}%d'}}\n", "no other %"},
	} {
		p := problems(t, source(folder(t, map[string]string{"mega.config.yaml": x.file})))
		if len(p) != 1 || !strings.Contains(p.Error(), x.says) {
			t.Errorf("%s: got %v, want %q", x.file, p, x.says)
		}
	}
}

func TestAddressOfAnotherProcessIsFree(t *testing.T) {
	s := source("", "MEGA_APPS_WEB_ADDR=:9", "MEGA_APPS_ADMIN_ADDR=:9")
	if p := problems(t, s); p[0].Code != "config.address_twice" {
		t.Errorf("in one process: got %v", p)
	}
	s.Only = []string{"admin"}
	if _, err := settings.Load(s); err != nil {
		t.Error(err)
	}
}
