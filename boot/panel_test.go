package boot_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/testkit/certificate"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// broken is a configuration or a program that cannot start.
type broken struct {
	code string
	name string // what distinguishes it from others of the same code
	exit int
	run
	needs func(t *testing.T) (environ []string) // what has to be there, or to be broken
}

func (b broken) file() string {
	name := b.code
	if b.name != "" {
		name += "-" + strings.ReplaceAll(b.name, " ", "-")
	}
	return "panels/" + name + ".txt"
}

// in is a run with a program that is broken.
func in(program string) run {
	return run{environ: []string{"MEGA_TEST_SHOP=" + program}}
}

func with(environ ...string) run { return run{environ: environ} }

// file is a run in a folder with that file.
func file(name, text string) run { return run{files: map[string]string{name: text}} }

// breakages are all the ways in which a boot fails.
func breakages() []broken {
	return []broken{
		{code: "boot.no_app", exit: 70, run: in("without an app")},
		{code: "boot.app", exit: 70, run: in("with an app that cannot be called that")},
		{code: "boot.unknown_app", exit: 64, run: run{args: []string{"serve", "--only", "shop"}}},
		{code: "boot.wrong_shape", exit: 70, run: in("with a function of the wrong shape")},
		{code: "boot.wrong_shape", name: "no context", exit: 70, run: in("with a hook that takes no context")},
		{code: "boot.wrong_shape", name: "two contexts", exit: 70, run: in("with a hook that takes two contexts")},
		{code: "boot.not_provided", exit: 70, run: in("with a value that nobody provides")},
		{code: "boot.provided_twice", exit: 70, run: in("with a value that is provided twice")},
		{code: "boot.circle", exit: 70, run: in("with constructors that need each other")},
		{code: "boot.constructor_failed", exit: 69, run: in("with a constructor that fails")},
		{code: "boot.constructor_panicked", exit: 70, run: in("with a constructor that panics")},
		{code: "boot.hook_failed", exit: 70, run: in("with a hook that fails")},
		{code: "boot.hook_overrun", exit: 75, run: in("with a hook that takes too long")},
		{code: "boot.views", exit: 70, run: in("with a page that does not parse")},
		{code: "boot.public", exit: 70, run: in("with a file that cannot be read")},
		{code: "boot.locales", exit: 70, run: in("with texts in too few languages")},
		{code: "boot.routes", exit: 70, run: in("with routes that cannot be")},
		{code: "boot.route_conflict", exit: 70, run: in("with two routes of which one cannot be reached")},
		{code: "boot.route_conflict", name: "prefix", exit: 70, run: in("with a route below another app").and("MEGA_APPS_ADMIN_PREFIX=/admin")},
		{code: "boot.command_name", exit: 70, run: in("with a command that is a verb")},
		{code: "boot.command_failed", exit: 1, run: run{args: []string{"import", "products.csv"}}.and("MEGA_TEST_SHOP=with a command")},
		{code: "bus.refused", exit: 78, run: in("with a subscription"), needs: denying},
		{code: "boot.failed", exit: 70, run: in("with an option of the injector that fails")},
		{code: "boot.unknown_trace", exit: 64, run: run{args: []string{"serve", "--trace", "everything"}}},
		{code: "app.cannot_listen", name: "taken", exit: 69, needs: taken("MEGA_APPS_WEB_ADDR")},
		{code: "app.cannot_listen", name: "all taken", exit: 69, needs: allOf(taken("MEGA_APPS_WEB_ADDR"), taken("MEGA_APPS_ADMIN_ADDR"))},
		{code: "app.cannot_listen", name: "all taken for workers", exit: 69, run: with("MEGA_CLUSTER_WORKERS=2"), needs: allOf(taken("MEGA_APPS_WEB_ADDR"), taken("MEGA_APPS_ADMIN_ADDR"))},
		{code: "app.cannot_listen", name: "ops", exit: 69, needs: taken("MEGA_OPS_ADDR")},
		{code: "app.cannot_listen", name: "ops and an app", exit: 69, needs: allOf(taken("MEGA_OPS_ADDR"), taken("MEGA_APPS_ADMIN_ADDR"))},
		{code: "app.cannot_listen", name: "ops and an app for workers", exit: 69, run: with("MEGA_CLUSTER_WORKERS=2"), needs: allOf(taken("MEGA_OPS_ADDR"), taken("MEGA_APPS_ADMIN_ADDR"))},
		{code: "app.cannot_listen", name: "not ours", exit: 69, run: with("MEGA_APPS_ADMIN_ADDR=192.0.2.1:80")},
		{code: "app.bad_certificate", exit: 78, run: with("MEGA_APPS_WEB_TLS_CERT=/nowhere/cert.pem", "MEGA_APPS_WEB_TLS_KEY=/nowhere/key.pem")},
		{code: "cache.not_configured", exit: 78, run: in("with a client of redis")},
		{code: "cache.ambiguous", exit: 78, run: in("with a client of redis").and("MEGA_CACHE_PAGES_URL=redis://a", "MEGA_CACHE_USERS_URL=redis://b", "MEGA_LOCK_DRIVER=memory")},
		{code: "cache.refused", exit: 78, run: in("with a client of redis").and("MEGA_CACHE_MAIN_URL=redis://cache/shop", "MEGA_LOCK_DRIVER=memory")},
		{code: "cache.refused", name: "password", exit: 78, run: in("with a client of redis").and("MEGA_LOCK_DRIVER=memory"), needs: guarded},
		{code: "cache.unavailable", exit: 69, run: in("with a client of redis").and("MEGA_LOCK_DRIVER=memory"), needs: gone},

		{code: "limit.no_cache", exit: 78, run: with("MEGA_LIMIT_DRIVER=redis")},
		{code: "limit.no_cluster", exit: 78, run: with("MEGA_LIMIT_DRIVER=cluster")},
		{code: "limit.ambiguous_cache", exit: 78, run: with("MEGA_CACHE_PAGES_URL=redis://a", "MEGA_CACHE_USERS_URL=redis://b", "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis")},
		{code: "limit.scope_too_small", exit: 78, run: file("mega.config.yaml", "limit:\n  require: fleet\n")},
		{code: "limit.driver_refused", exit: 78, run: file("mega.config.yaml", "cache:\n  main:\n    url: redis://cache:6379/shop\nlock:\n  driver: memory\nlimit:\n  driver: redis\n")},
		{code: "limit.driver_unavailable", exit: 69, needs: gone, run: with("MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis")},
		{code: "lock.no_cache", exit: 78, run: file("mega.config.yaml", "lock:\n  driver: redis\n")},
		{code: "lock.ambiguous_cache", exit: 78, run: file("mega.config.toml", "[cache.main]\nurl = \"redis://:hunter2@a\"\n\n[cache.pages]\nurl = \"redis://b\"\n")},
		{code: "lock.no_cluster", exit: 78, run: file("mega.config.json", "{\n  \"lock\": {\"driver\": \"cluster\"}\n}\n")},
		{code: "cluster.no_supervisor", exit: 78, run: with("MEGA_WORKER_FD=99")},
		{code: "cluster.place_refused", exit: 78, run: file("mega.config.yaml", "cluster:\n  socket: /nowhere/of/it/cluster.sock\n")},
		{code: "cluster.place_refused", name: "bus", exit: 78, run: with("MEGA_CLUSTER_SOCKET=/nowhere/of/it/cluster.sock", "MEGA_LOCK_DRIVER=memory", "MEGA_BUS_DRIVER=cluster")},
		{code: "config.invalid", name: "socket", exit: 78, run: file("mega.config.yaml", "cluster:\n  socket: AUTO\n")},
		{code: "lock.scope_too_small", exit: 78, run: file("mega.config.yaml", "lock:\n  require: node\n")},
		{code: "lock.scope_too_small", name: "asked", exit: 78, run: file("mega.config.yaml", "cache:\n  main:\n    url: redis://cache:6379/0\nlock:\n  require: fleet\n").and("MEGA_LOCK_DRIVER=memory")},
		{code: "lock.scope_too_small", name: "app", exit: 78, run: in("with an app that needs the whole fleet")},
		{code: "lock.scope_too_small", name: "only", exit: 78, run: run{args: []string{"serve", "--only", "web"}, environ: []string{"MEGA_LOCK_REQUIRE=fleet"}}},
		{code: "lock.unsupported", exit: 78, run: in("with a report every minute").and("MEGA_CACHE_MAIN_URL=redis://cache", "MEGA_LOCK_REDIS_ENGINE=redislock")},
		{code: "lock.driver_unavailable", exit: 69, needs: gone, run: file("mega.config.yaml", "cache:\n  main:\n    url: redis://cache:6379/0\nboot:\n  wait_for: 200ms\n")},
		{code: "lock.driver_unavailable", name: "asked", exit: 69, needs: gone, run: run{args: []string{"serve", "--set", "lock.driver=redis"}}},
		{code: "lock.driver_refused", name: "password", exit: 78, needs: guarded},
		{code: "lock.driver_refused", name: "database", exit: 78, needs: at("redis://%s/99", plainRedis)},
		{code: "lock.driver_refused", name: "certificate", exit: 78, needs: at("rediss://%s", secureRedis)},
		{code: "lock.driver_refused", name: "client-certificate", exit: 78, needs: at("rediss://%s?skip_verify=true", mutualRedis)},
		{code: "lock.driver_refused", name: "encryption", exit: 78, needs: at("rediss://%s", greeter)},
		{code: "lock.driver_refused", name: "TLS", exit: 78, needs: at("redis://%s", secureRedis)},
		{code: "lock.driver_refused", name: "cluster", exit: 78, needs: at("redis://%s", memberOfCluster)},
		{code: "lock.driver_refused", name: "http", exit: 78, needs: at("redis://:hunter2@%s", webServer)},
		{code: "lock.driver_refused", name: "file", exit: 78, run: with("MEGA_CACHE_MAIN_URL=rediss://:hunter2@cache:6379/0?tls_ca=missing.pem")},
		{code: "lock.driver_unavailable", name: "replica", exit: 69, needs: replica},
		{code: "lock.driver_refused", exit: 78, run: file("mega.config.yaml", "cache:\n  main:\n    url: redis://:hunter2@cache:6379/shop\n")},

		{code: "bus.no_server", exit: 78, run: with("MEGA_BUS_DRIVER=nats")},
		{code: "bus.no_cluster", exit: 78, run: with("MEGA_BUS_DRIVER=cluster")},
		{code: "bus.driver_unavailable", exit: 69, needs: goneNATS},
		{code: "bus.driver_refused", exit: 78, run: file("mega.config.yaml", "nats:\n  url: nats://u:hunter2@queue:4222\n  tls: {ca: missing.pem}\n")},
		{code: "bus.driver_refused", name: "password", exit: 78, needs: guardedNATS},
		{code: "bus.driver_refused", name: "greeting", exit: 78, needs: greetingNATS},
		{code: "bus.driver_refused", name: "certificate", exit: 78, needs: secureNATS},
		{code: "bus.scope_too_small", exit: 78, run: file("mega.config.yaml", "bus:\n  require: fleet\n")},

		{code: "config.problems", name: "json", exit: 78, run: run{args: []string{"serve", "--json"}, environ: []string{"MEGA_LOCK_TTL=5", "MEGA_LOK_WAIT=1s"}}},
		{code: "lock.scope_too_small", name: "json", exit: 78, run: run{args: []string{"serve", "--json"}, environ: []string{"MEGA_LOCK_REQUIRE=fleet"}}},
		{code: "config.problems", exit: 78, run: file("mega.config.yaml", "lock:\n  ttl: 5\n  drivr: redis\nbus:\n").and("MEGA_LOK_WAIT=1s", "MEGA_CACHE_MAIN_URL=http://:hunter2@cache")},
		{code: "config.unknown_key", exit: 78, run: file("mega.config.yaml", "name: shop\nlock:\n  drivr: redis\n")},
		{code: "config.unknown_key", name: "toml", exit: 78, run: file("mega.config.toml", "name = \"shop\"\n\n[lock]\ndrivr = \"redis\"\n")},
		{code: "config.unknown_key", name: "json", exit: 78, run: file("mega.config.json", "{\n  \"name\": \"shop\",\n  \"lock\": {\n    \"drivr\": \"redis\"\n  }\n}\n")},
		{code: "config.unknown_key", name: "app", exit: 78, run: file("apps/web/app.config.yaml", "database:\n  pol: 8\n")},
		{code: "config.unknown_key", name: "variable", exit: 78, run: with("MEGA_LOCK_REDIS_PASSWORD=hunter2")},
		{code: "config.unknown_key", name: "set", exit: 78, run: run{args: []string{"serve", "--set", "lock.drivr=redis"}}},
		{code: "config.unknown_app", exit: 78, run: with("MEGA_APPS_SHOP_ADDR=:8080")},
		{code: "config.unknown_cache", exit: 78, run: file("mega.config.yaml", "lock:\n  cache: main\n")},
		{code: "config.no_unit", exit: 78, run: file("mega.config.yaml", "lock:\n  ttl: 5\n")},
		{code: "config.no_unit", name: "variable", exit: 78, run: file("mega.config.yaml", "lock:\n  ttl: 30s\n").and("MEGA_LOCK_TTL=5")},
		{code: "config.invalid", exit: 78, run: file("mega.config.yaml", "lock:\n  driver: reddis\n")},
		{code: "config.missing", exit: 78, run: in("with a section that must be set")},
		{code: "config.provider", exit: 69, run: in("with a settings service that is down")},
		{code: "config.section", exit: 70, run: in("with a section that cannot be")},
		{code: "config.duplicate_key", exit: 78, run: file("mega.config.yaml", "lock:\n  ttl: 5s\n  wait: 1s\n  ttl: 10s\n")},
		{code: "config.syntax", exit: 78, run: file("mega.config.yaml", "lock:\n  ttl: 5s\n wait: 1s\n")},
		{code: "config.secret_on_command_line", exit: 78, run: run{args: []string{"serve", "--set", "database.password=hunter2"}}},
		{code: "config.empty_section", exit: 78, run: file("mega.config.yaml", "name: shop\nlock:\n")},
		{code: "config.two_formats", exit: 78, run: file("mega.config.yaml", "name: shop\n").beside("mega.config.toml", "name = \"shop\"\n")},
		{code: "config.no_file", exit: 78, run: run{args: []string{"serve", "--config", "nowhere.yaml"}}},
		{code: "config.file", exit: 78, run: file("mega.config.yaml/notes", "a folder of that name\n")},
		{code: "config.address_twice", exit: 78, run: with("MEGA_APPS_WEB_ADDR=127.0.0.1:8080", "MEGA_APPS_ADMIN_ADDR=127.0.0.1:8080")},
		{code: "config.contradiction", exit: 78, run: file("mega.config.yaml", "nats:\n  url: nats://queue:4222\n  password: hunter2\n")},
		{code: "config.too_late", exit: 78, run: file("mega.config.yaml", "name: shop\nenv: staging\n")},
	}
}

// notShown are codes that no panel here shows, and why.
var notShown = map[string]string{
	"boot.constructor_overrun": "a constructor has 15 seconds",
	"cluster.changed":          "the file changes while the workers run",
	"cluster.unavailable":      "a hub that stands still has 5 seconds",
	"cluster.worker_died":      "what its workers say comes in any order",
	"limit.driver_missing":     "only Windows lacks one, the cluster",
	"lock.driver_missing":      "only Windows lacks one, the cluster",
	"bus.driver_missing":       "only Windows lacks one, the cluster",
	"boot.routes_unknown":      "it ends no boot, but the listing of routes",
}

// taken is an address that somebody else has.
func taken(variable string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return []string{variable + "=" + l.Addr().String()}
	}
}

func allOf(needs ...func(*testing.T) []string) func(*testing.T) []string {
	return func(t *testing.T) (all []string) {
		t.Helper()
		for _, need := range needs {
			all = append(all, need(t)...)
		}
		return all
	}
}

// gone is a redis that is no longer there.
func gone(t *testing.T) []string {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	return []string{"MEGA_CACHE_MAIN_URL=" + server.URL(), "MEGA_BOOT_WAIT_FOR=200ms"}
}

// goneNATS is a server of messages that is no longer there.
func goneNATS(t *testing.T) []string {
	t.Helper()
	server := natstest.Start(t, natstest.Options{})
	server.Stop()
	return []string{"MEGA_NATS_URL=nats://u:hunter2@" + strings.TrimPrefix(server.URL(), "nats://"), "MEGA_BOOT_WAIT_FOR=200ms"}
}

// guarded is a redis with another password. It is not waited for.
func guarded(t *testing.T) []string {
	t.Helper()
	server := redistest.Start(t, redistest.Options{Password: "swordfish"})
	return []string{"MEGA_CACHE_MAIN_URL=redis://:hunter2@" + server.Addr(), "MEGA_BOOT_WAIT_FOR=1h"}
}

// guardedNATS is a server of messages with another password.
func guardedNATS(t *testing.T) []string {
	t.Helper()
	server := natstest.Start(t, natstest.Options{User: "u", Password: "swordfish"})
	return []string{"MEGA_NATS_URL=nats://u:hunter2@" + strings.TrimPrefix(server.URL(), "nats://"), "MEGA_BOOT_WAIT_FOR=1h"}
}

// denying is a server of messages that denies a subscription.
func denying(t *testing.T) []string {
	t.Helper()
	server := natstest.Start(t, natstest.Options{Deny: []string{"ev.product.sold"}})
	return []string{"MEGA_NATS_URL=" + server.URL()}
}

// at is a cache at the address of a server. It is not waited for.
func at(url string, server func(t *testing.T) (addr string)) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		return []string{"MEGA_CACHE_MAIN_URL=" + fmt.Sprintf(url, server(t)), "MEGA_BOOT_WAIT_FOR=1h"}
	}
}

func plainRedis(t *testing.T) string {
	t.Helper()
	return redistest.Start(t, redistest.Options{}).Addr()
}

func memberOfCluster(t *testing.T) string {
	t.Helper()
	return redistest.Start(t, redistest.Options{Config: []string{"cluster-enabled yes"}}).Addr()
}

func secureRedis(t *testing.T) string {
	t.Helper()
	_, addr, _ := redistest.StartTLS(t, certificate.Certificate{})
	return addr
}

// mutualRedis is a redis that requires a certificate of its clients, as one with TLS does
// by default.
func mutualRedis(t *testing.T) string {
	t.Helper()
	_, addr, _ := redistest.StartTLS(t, certificate.Certificate{}, "tls-auth-clients yes")
	return addr
}

func webServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// greeter is a server of an unknown kind that speaks first, without TLS.
func greeter(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "220 ready\r\n")
			_, _ = io.Copy(io.Discard, conn) // until the client leaves: an early end could overtake the greeting
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// secureNATS is a server of messages with a certificate that nobody knows.
func secureNATS(t *testing.T) []string {
	t.Helper()
	cert, key := certificate.Certificate{}.Write(t)
	server := natstest.Start(t, natstest.Options{Cert: cert, Key: key})
	return []string{"MEGA_NATS_URL=" + server.URL(), "MEGA_BOOT_WAIT_FOR=1h"}
}

// greetingNATS is a server of messages that greets before TLS.
func greetingNATS(t *testing.T) []string {
	t.Helper()
	cert, key := certificate.Certificate{}.Write(t)
	server := natstest.Start(t, natstest.Options{Cert: cert, Key: key})
	return []string{"MEGA_NATS_URL=" + server.URL(), "MEGA_NATS_TLS_HANDSHAKE_FIRST=true"}
}

// replica is a redis that takes no writes.
func replica(t *testing.T) []string {
	t.Helper()
	master, server := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
	_, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do("REPLICAOF", "127.0.0.1", port); err != nil {
		t.Fatal(err)
	}
	return []string{"MEGA_CACHE_MAIN_URL=" + server.URL(), "MEGA_BOOT_WAIT_FOR=0"}
}

// TestPanels breaks the configuration, the surroundings or the program itself,
// starts the real binary and compares what it says with a golden file. What
// the panel says is what somebody reads who has to mend it at night: read it.
func TestPanels(t *testing.T) {
	for _, b := range breakages() {
		t.Run(strings.TrimSuffix(filepath.Base(b.file()), ".txt"), func(t *testing.T) {
			t.Parallel()
			if b.needs != nil {
				b.environ = append(b.environ, b.needs(t)...)
			}
			e := b.end(t)
			if e.status != b.exit || !strings.Contains(e.stderr, "("+b.code+")") && !strings.Contains(e.stderr, `"code":"`+b.code+`"`) {
				t.Fatalf("exit status %d, want %d with %s:\n%s", e.status, b.exit, b.code, e.stderr)
			}
			if n := strings.Count(e.stderr, "\n    • "); n > 4 {
				t.Errorf("the panel has %d things to do, want at most 4", n)
			}
			if strings.Contains(e.stderr, "hunter2") {
				t.Errorf("the panel tells the password:\n%s", e.stderr)
			}
			golden(t, b.file(), b.told(e))
		})
	}
}

// TestEveryCodeOfABootHasAPanel holds the panels against the catalogue.
func TestEveryCodeOfABootHasAPanel(t *testing.T) {
	shown := map[string]int{}
	for _, b := range breakages() {
		shown[b.code]++
		c, err := failure.Explain(b.code)
		if err != nil || c.Exit != b.exit {
			t.Errorf("%s ends with %d, in the catalogue with %d (%v)", b.file(), b.exit, c.Exit, err)
		}
	}
	for _, c := range failure.Codes() {
		area, _, _ := strings.Cut(c.Name, ".")
		if c.Exit != 0 && area != "cli" && area != "new" && area != "dev" && shown[c.Name] == 0 && notShown[c.Name] == "" {
			t.Errorf("no panel shows %s", c.Name)
		}
	}
	files, err := filepath.Glob("testdata/panels/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, b := range breakages() {
		known[filepath.Base(b.file())] = true
	}
	for _, f := range files {
		if !known[filepath.Base(f)] {
			t.Errorf("nothing writes %s", f)
		}
	}
}
