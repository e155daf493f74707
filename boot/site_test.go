package boot_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
)

// getFrom gets a page of a host.
func getFrom(t *testing.T, host, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Accept", "application/json")
	return send(t, r)
}

func where(r megactx.Router) {
	r.Get("/*", func(c *megactx.Ctx) error { return c.Text(200, c.App.Name+" "+c.Request().URL.Path) })
}

func TestAppsShareAListener(t *testing.T) {
	p, _ := process(
		"MEGA_APPS_ADMIN_ADDR=127.0.0.1:0", "MEGA_APPS_ADMIN_PREFIX=/admin",
		"MEGA_APPS_SHOP_ADDR=127.0.0.1:0", "MEGA_APPS_SHOP_HOST=*.example.org",
	)
	app := func(name string) mega.Option { return mega.App(name, mega.Routes(where)) }
	r := start(t, p, app("main"), app("admin"), app("shop"))
	base := r.Report().Apps[0].URL
	for i, url := range []string{base, base + "/admin", base} {
		if got := r.Report().Apps[i].URL; got != url {
			t.Errorf("app %d is at %s, want %s", i, got, url)
		}
	}
	for _, x := range []struct{ host, path, want string }{
		{"", "/x", "main /x"}, {"", "/admin/x", "admin /x"}, {"a.example.org", "/x", "shop /x"},
	} {
		if _, body := getFrom(t, x.host, base+x.path); body != x.want {
			t.Errorf("%s%s: got %q, want %q", x.host, x.path, body, x.want)
		}
	}
}

func TestWhatNoAppIsForIsNotFound(t *testing.T) {
	p, _ := process("MEGA_APPS_MAIN_HOST=main.example.org")
	r := start(t, p, mega.App("main", mega.Routes(where)))
	url := r.Report().Apps[0].URL
	if status, body := getFrom(t, "main.example.org:1", url+"/x"); status != 200 || body != "main /x" {
		t.Errorf("its own host: got %d %s", status, body)
	}
	if status, body := getFrom(t, "other.example.org", url+"/x"); status != 404 || !strings.Contains(body, `"code":"request.not_found"`) {
		t.Errorf("another host: got %d %s", status, body)
	}
}

func TestPortZeroIsAnotherPortForEachApp(t *testing.T) {
	p, _ := process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	r := start(t, p, mega.App("main", mega.Routes(where)), mega.App("admin", mega.Routes(where)))
	if apps := r.Report().Apps; apps[0].URL == apps[1].URL {
		t.Errorf("both are at %s", apps[0].URL)
	}
}

func TestTwoAppsForTheSameRequestsAreRefused(t *testing.T) {
	for _, environ := range [][]string{
		{"MEGA_APPS_MAIN_ADDR=127.0.0.1:65001", "MEGA_APPS_ADMIN_ADDR=127.0.0.1:65001"},
		{"MEGA_APPS_ADMIN_ADDR=127.0.0.1:0", "MEGA_APPS_MAIN_PREFIX=/x", "MEGA_APPS_ADMIN_PREFIX=/x"},
		{"MEGA_APPS_ADMIN_ADDR=127.0.0.1:0", "MEGA_APPS_MAIN_HOST=x", "MEGA_APPS_ADMIN_HOST=x"},
	} {
		p, _ := process(environ...)
		f := fail(t, p, mega.App("main", mega.Routes(where)), mega.App("admin", mega.Routes(where)))
		if f.Code != "config.address_twice" || f.Exit != failure.ExitConfig {
			t.Errorf("%q: got %+v", environ, f)
		}
	}
}

func TestMountedAppLinksToItself(t *testing.T) {
	p, _ := process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0", "MEGA_APPS_ADMIN_PREFIX=/admin")
	r := start(t, p, mega.App("main"), mega.App("admin", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error { return c.Redirect(303, "/users") })
		r.Get("/users", func(c *megactx.Ctx) error { return c.Text(200, "users") })
	})))
	if status, body := get(t, r.Report().Apps[1].URL); status != 200 || body != "users" {
		t.Errorf("got %d %s", status, body)
	}
}

func TestEachAppHasItsOwnLevelOfLog(t *testing.T) {
	p, stderr := process("MEGA_APPS_ADMIN_ADDR=127.0.0.1:0", "MEGA_LOG_LEVEL=warn", "MEGA_APPS_ADMIN_LOG_LEVEL=debug")
	app := func(name string) mega.Option {
		return mega.App(name, mega.Routes(func(r megactx.Router) {
			r.Get("/", func(c *megactx.Ctx) error {
				c.Log.Debug(name + " in detail")
				c.Log.Warn(name + " at least")
				return nil
			})
		}))
	}
	r := start(t, p, app("main"), app("admin"))
	for _, a := range r.Report().Apps {
		get(t, a.URL)
	}
	for text, want := range map[string]bool{"main in detail": false, "main at least": true, "admin in detail": true, "admin at least": true} {
		if got := strings.Contains(stderr.String(), text); got != want {
			t.Errorf("%q is logged: %v, want %v\n%s", text, got, want, stderr)
		}
	}
}

func TestLimitsOfAnAppComeFromItsConfiguration(t *testing.T) {
	p, _ := process("MEGA_APPS_MAIN_BODY_LIMIT=10B", "MEGA_APPS_MAIN_TIMEOUT=20ms")
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Post("/", func(c *megactx.Ctx) error {
			var body struct{ Text string }
			return c.Bind(&body)
		})
		r.Get("/slow", func(c *megactx.Ctx) error { <-c.Done(); return c.Err() })
	})))
	url := r.Report().Apps[0].URL
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"text":"longer than allowed"}`))
	if err != nil {
		t.Fatal(err)
	}
	post.Header.Set("Content-Type", "application/json")
	if status, body := send(t, post); status != 413 {
		t.Errorf("too large: got %d %s", status, body)
	}
	if status, body := get(t, url+"/slow"); status != 504 {
		t.Errorf("too slow: got %d %s", status, body)
	}
}

func TestAppSpeaksItsLanguages(t *testing.T) {
	texts := fstest.MapFS{"locales/en.yaml": {Data: []byte("hello: Hello")}, "locales/ko.yaml": {Data: []byte("hello: 안녕")}}
	app := mega.App("main", mega.Locales(texts), mega.Routes(func(r megactx.Router, info megactx.AppInfo) {
		r.Get("/", func(c *megactx.Ctx) error {
			return c.Text(200, c.T("hello")+" "+strings.Join(info.Locales, ",")+" "+strings.Join(c.App.Locales, ","))
		})
	}))
	for variable, want := range map[string]string{"": "Hello en,ko en,ko", "ko": "안녕 ko ko"} {
		p, _ := process("MEGA_APPS_MAIN_LOCALES=" + variable)
		r := start(t, p, app)
		if _, body := get(t, r.Report().Apps[0].URL); body != want {
			t.Errorf("got %q, want %q", body, want)
		}
	}
	p, _ := process("MEGA_APPS_MAIN_LOCALES=fr")
	if f := fail(t, p, app); f.Code != "boot.locales" || len(f.Facts) != 1 || f.Facts[0].Value != "apps.main.locales = fr  (env MEGA_APPS_MAIN_LOCALES)" {
		t.Errorf("got %+v", f)
	}
}

func TestConfigurationIsFoundAboveTheFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module shop\n", "mega.config.yaml": "lock: {ttl: 3s}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	below := filepath.Join(dir, "cmd")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	p, _ := process()
	p.Dir, p.Set = below, []string{"lock.wait=4s"}
	made, err := boot.Plan(p, mega.App("main"))
	if err != nil {
		t.Fatal(err)
	}
	if c := made.Config; c.Lock.TTL != 3*time.Second || c.Lock.Wait != 4*time.Second {
		t.Errorf("got %v and %v", c.Lock.TTL, c.Lock.Wait)
	}
	p.Set = []string{"lock.wiat=4s"}
	if _, err := boot.Plan(p, mega.App("main")); err == nil || !strings.Contains(err.Error(), "wrong") {
		t.Errorf("got %v", err)
	}
}

// A page whose own name resolves to a loopback address would read an app there
// as its own.
func TestAppInDevAnswersLocalNamesOnly(t *testing.T) {
	apps := []mega.Option{mega.App("main", mega.Routes(where)), mega.App("admin", mega.Routes(where)), mega.App("shop", mega.Routes(where))}
	environ := []string{
		"MEGA_APPS_ADMIN_ADDR=127.0.0.1:0", "MEGA_APPS_ADMIN_PREFIX=/admin",
		"MEGA_APPS_SHOP_ADDR=127.0.0.1:0", "MEGA_APPS_SHOP_HOST=shop.example.org",
	}
	for env, others := range map[string]int{"dev": 403, "production": 200} {
		posted := map[string]int{"dev": 403, "production": 405}[env]
		p, _ := process(append(environ, "MEGA_ENV="+env)...)
		r := start(t, p, apps...)
		at := strings.TrimPrefix(r.Report().Apps[0].URL, "http://")
		_, port, _ := net.SplitHostPort(at)
		for head, want := range map[string]int{
			"GET / HTTP/1.1\r\nHost: localhost":                                   200,
			"GET / HTTP/1.1\r\nHost: LocalHost.:" + port:                          200,
			"GET / HTTP/1.1\r\nHost: shop.localhost":                              200,
			"GET / HTTP/1.1\r\nHost: 127.0.0.1:" + port:                           200,
			"GET / HTTP/1.1\r\nHost: 127.1.2.3":                                   200,
			"GET / HTTP/1.1\r\nHost: [::1]:" + port:                               200,
			"GET / HTTP/1.1\r\nHost: [::1]":                                       200,
			"GET / HTTP/1.1\r\nHost: shop.example.org":                            200,
			"GET http://localhost/ HTTP/1.1\r\nHost: evil.example":                200, // the target counts
			"GET / HTTP/1.1\r\nHost: evil.example":                                others,
			"GET /admin/ HTTP/1.1\r\nHost: evil.example":                          others,
			"POST /admin/ HTTP/1.1\r\nContent-Length: 0\r\nHost: evil.example":    posted,
			"GET / HTTP/1.1\r\nHost: localhost.evil.example":                      others,
			"GET / HTTP/1.1\r\nHost: evillocalhost":                               others,
			"GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example":                      others,
			"GET / HTTP/1.1\r\nHost: 2130706433":                                  others,
			"GET / HTTP/1.1\r\nHost: 0.0.0.0":                                     others,
			"GET / HTTP/1.1\r\nHost: [::1%25lo]":                                  others,
			"GET / HTTP/1.1\r\nHost: [::]":                                        others,
			"GET / HTTP/1.1\r\nHost: evil.example:" + port:                        others,
			"GET / HTTP/1.1\r\nHost: ":                                            others,
			"GET / HTTP/1.0":                                                      others,
			"GET http://evil.example/ HTTP/1.1\r\nHost: localhost":                others,
			"GET / HTTP/1.1\r\nX-Forwarded-Host: localhost\r\nHost: evil.example": others,
		} {
			conn := dial(t, r.Report().Apps[0].URL)
			if _, err := fmt.Fprintf(conn, "%s\r\n\r\n", head); err != nil {
				t.Fatal(err)
			}
			if code, err := status(conn); code != want || err != nil {
				t.Errorf("%s: %q: got %d, %v; want %d", env, head, code, err, want)
			}
			_ = conn.Close()
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
}
