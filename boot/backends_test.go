package boot_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/testkit/certificate"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// eventually asks until the status and a part of the body are as wanted.
func eventually(t *testing.T, url string, status int, part string, has bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		got, body := get(t, url)
		if got == status && strings.Contains(body, part) == has {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%s answers %d %s; want %d, and that it has %q: %v", url, got, body, status, part, has)
		}
	}
}

// The loss of a server degrades a program that runs, and makes it unready where
// it is required. Each loss and each return is one line of the log.
func TestLossAndReturnOfServersAreReported(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, require string
		status        int
	}{{"degraded", "", http.StatusOK}, {"required", "fleet", http.StatusServiceUnavailable}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			locks, messages := redistest.Start(t, redistest.Options{}), natstest.Start(t, natstest.Options{})
			p, stderr := process("MEGA_CACHE_MAIN_URL="+locks.URL(), "MEGA_NATS_URL="+messages.URL(), "MEGA_LOG_FORMAT=json",
				"MEGA_LOCK_REQUIRE="+x.require, "MEGA_BUS_REQUIRE="+x.require)
			ops := start(t, p, mega.App("main", mega.Routes(hello))).Report().Ops
			eventually(t, ops+"/readyz", http.StatusOK, "lost", false)
			if err := locks.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, ops+"/readyz", x.status, "connection refused", true)
			eventually(t, ops+"/metrics", http.StatusOK, "mega_lock_available 0\n", true)
			messages.Stop()
			eventually(t, ops+"/readyz", x.status, "the bus is disconnected", true)
			eventually(t, ops+"/metrics", http.StatusOK, "mega_bus_connected 0\n", true)
			eventually(t, ops+"/livez", http.StatusOK, "ok", true)
			if status, body := get(t, ops+"/readyz"); strings.Contains(body, `"degraded":[`) != (x.require == "") || strings.Contains(body, `"reasons":{`) != (x.require != "") {
				t.Errorf("during the outage: %d %s", status, body)
			}
			if err := messages.Start(); err != nil {
				t.Fatal(err)
			}
			if err := locks.Restart(); err != nil {
				t.Fatal(err)
			}
			eventually(t, ops+"/readyz", http.StatusOK, "lost", false)
			for _, series := range []string{"mega_lock_available 1\n", "mega_bus_connected 1\n", "mega_lock_outages_total 1\n", "mega_bus_outages_total 1\n"} {
				eventually(t, ops+"/metrics", http.StatusOK, series, true)
			}
			for _, line := range []string{"lock backend lost", "lock backend returned", "bus backend lost", "bus backend returned"} {
				eventuallyOnce(t, stderr, line)
			}
		})
	}
}

// eventuallyOnce waits for a line of the log, which is written once.
func eventuallyOnce(t *testing.T, log interface{ String() string }, line string) {
	t.Helper()
	for began := time.Now(); !strings.Contains(log.String(), line) && time.Since(began) < 30*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("%q is logged %d times:\n%s", line, n, log)
	}
}

// The report lists the rules that the driver of messages does not keep, as for locks.
func TestReportListsWhatTheDriverOfMessagesLacks(t *testing.T) {
	p, stderr := process("MEGA_NATS_URL="+natstest.Start(t, natstest.Options{}).URL(), "MEGA_LOG_FORMAT=text")
	p.Verbose = true
	r := start(t, p, mega.App("main"))
	for _, rule := range []string{"S4", "S7", "S12"} {
		if !slices.ContainsFunc(r.Report().Bus.Lacks, func(l plan.Lack) bool { return l.Rule == rule && l.Why != "" }) || !strings.Contains(stderr.String(), "without "+rule) {
			t.Errorf("%s is missing in %+v and in the page\n%s", rule, r.Report().Bus.Lacks, stderr)
		}
	}
}

// The message was reported when the server refused it. The shutdown has cut off
// nothing.
func TestMessagesThatWereLostBeforeTheShutdownAreNoWorkOfIt(t *testing.T) {
	p, stderr := process("MEGA_NATS_URL="+natstest.Start(t, natstest.Options{DenyPublish: []string{"ev.secret"}}).URL(), "MEGA_LOG_FORMAT=text")
	r := start(t, p, mega.App("main", mega.OnStart("publish", func(c *mega.Ctx) error { return mega.Publish(c, bus.Topic[int]("secret"), 1) })))
	if !comes(stderr, "published message refused") {
		t.Fatalf("the refusal is not logged:\n%s", stderr)
	}
	if err := r.Stop(); err != nil {
		t.Errorf("got %v", err)
	}
}

// A process that uses no lock and no limit, and is not probed, reports the loss all the
// same. The locks report it for limits beside them.
func TestLossIsFoundByAnIdleProcess(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, line string
		environ    []string
	}{
		{"locks", "lock backend lost", nil},
		{"limits", "limit backend lost", []string{"MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis"}},
		{"limits that are required", "limit backend lost", []string{"MEGA_LIMIT_REQUIRE=fleet"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			p, stderr := process(append(x.environ, "MEGA_CACHE_MAIN_URL="+server.URL(), "MEGA_LOG_FORMAT=json")...)
			start(t, p, mega.App("main", mega.Routes(hello)))
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			eventuallyOnce(t, stderr, x.line)
		})
	}
}

// A server that does not fit the configuration refuses every attempt in the same
// way. That ends the boot without waiting for boot.wait_for (L21).
func TestRefusalEndsTheBootAtOnce(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t, redistest.Options{})
	guarded := redistest.Start(t, redistest.Options{Password: "swordfish"})
	limited := redistest.Start(t, redistest.Options{Users: []string{
		"ann on >swordfish ~other:* &* +@all", "bob on >swordfish ~* &* +@all -set", "cid on >swordfish ~* &* +@all -zadd",
	}})
	member := redistest.Start(t, redistest.Options{Config: []string{"cluster-enabled yes"}})
	without := func(command string) string {
		return redistest.Start(t, redistest.Options{Config: []string{`rename-command ` + command + ` ""`}}).URL()
	}
	sentinels := redistest.StartSentinels(t, 0, redistest.Options{})
	_, encrypted, _ := redistest.StartTLS(t, certificate.Certificate{})
	open, token := natstest.Start(t, natstest.Options{}), natstest.Start(t, natstest.Options{Token: "swordfish"})
	cert, key := certificate.Certificate{}.Write(t)
	secure := natstest.Start(t, natstest.Options{Cert: cert, Key: key})
	foreign, key := certificate.Certificate{Host: "nats.example"}.Write(t)
	named := natstest.Start(t, natstest.Options{Cert: foreign, Key: key})
	old, key := certificate.Certificate{Expired: true}.Write(t)
	expired := natstest.Start(t, natstest.Options{Cert: old, Key: key})
	cert2, key := certificate.Certificate{}.Write(t)
	mutual := natstest.Start(t, natstest.Options{Config: fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }", cert2, key, cert2)})
	barred := natstest.Start(t, natstest.Options{Config: `authorization: {users: [{user: u, password: p, permissions: {publish: "$SYS.>", subscribe: "_INBOX.>"}}]}`})
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	bus := strings.TrimPrefix(open.URL(), "nats://")
	on := func(scheme string, s *natstest.Server) string {
		return "MEGA_NATS_URL=" + scheme + "://" + strings.TrimPrefix(s.URL(), "nats://")
	}
	const cache = "MEGA_CACHE_MAIN_URL="
	for name, x := range map[string]struct {
		environ   []string
		code, say string
	}{
		"a wrong password":         {[]string{cache + "redis://:hunter2@" + guarded.Addr()}, "lock.driver_refused", "WRONGPASS"},
		"no password":              {[]string{cache + "redis://" + guarded.Addr()}, "lock.driver_refused", "NOAUTH"},
		"no permission":            {[]string{cache + "redis://ann:swordfish@" + limited.Addr()}, "lock.driver_refused", "NOPERM"},
		"no permission in scripts": {[]string{cache + "redis://bob:swordfish@" + limited.Addr()}, "lock.driver_refused", "ACL SETUSER"},
		"no permission to queue":   {[]string{cache + "redis://cid:swordfish@" + limited.Addr()}, "lock.driver_refused", "ACL SETUSER"},
		"a database that is not":   {[]string{cache + plain.URL() + "/99"}, "lock.driver_refused", "DB index is out of range"},
		"a database of redislock":  {[]string{cache + plain.URL() + "/99", "MEGA_LOCK_REDIS_ENGINE=redislock"}, "lock.driver_refused", "DB index is out of range"},
		"a database of limits":     {[]string{cache + plain.URL() + "/99", "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis"}, "limit.driver_refused", "DB index is out of range"},
		"a database of a member":   {[]string{cache + member.URL() + "/1"}, "lock.driver_refused", "SELECT is not allowed in cluster mode"},
		"a member of a Cluster":    {[]string{cache + member.URL()}, "lock.driver_refused", "redis-cluster://"},
		"no Cluster":               {[]string{cache + "redis-cluster://" + plain.Addr()}, "lock.driver_refused", "use the scheme redis://"},
		"no scripts":               {[]string{cache + without("EVALSHA")}, "lock.driver_refused", "has disabled a command"},
		"no pushes":                {[]string{cache + without("PUBLISH")}, "lock.driver_refused", "has disabled a command"},
		"no subscriptions":         {[]string{cache + without("SUBSCRIBE")}, "lock.driver_refused", "has disabled a command"},
		"no queues":                {[]string{cache + without("ZADD")}, "lock.driver_refused", "has disabled a command"},
		"no pings":                 {[]string{cache + without("PING")}, "lock.driver_refused", "has disabled a command"},
		"no state of waiters":      {[]string{cache + without("ZMSCORE"), "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis"}, "limit.driver_refused", "has disabled a command"},
		"no scripts for limits":    {[]string{cache + without("EVALSHA"), "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis"}, "limit.driver_refused", "has disabled a command"},
		"a Sentinel":               {[]string{cache + "redis://" + sentinels.Addrs()[0]}, "lock.driver_refused", "redis-sentinel://"},
		"no Sentinel":              {[]string{cache + "redis-sentinel://" + plain.Addr() + "/mega"}, "lock.driver_refused", "unknown command 'sentinel'"},
		"an unknown authority":     {[]string{cache + "rediss://" + encrypted}, "lock.driver_refused", "unknown authority"},
		"an HTTP server, no TLS":   {[]string{cache + "rediss://" + web.Listener.Addr().String()}, "lock.driver_refused", "An HTTP server answers"},
		"no TLS at a Redis":        {[]string{cache + "rediss://" + plain.Addr()}, "lock.driver_refused", "use the scheme redis://"},
		"TLS alone":                {[]string{cache + "redis://" + encrypted}, "lock.driver_refused", "use the scheme rediss://"},
		"TLS for limits":           {[]string{cache + "redis://" + encrypted, "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis"}, "limit.driver_refused", "use the scheme rediss://"},
		"an HTTP server":           {[]string{cache + "redis://" + web.Listener.Addr().String()}, "lock.driver_refused", "An HTTP server answers"},
		"a wrong token":            {[]string{strings.Replace(on("nats", token), "://", "://hunter2@", 1)}, "bus.driver_refused", "Authorization Violation"},
		"no token":                 {[]string{on("nats", token)}, "bus.driver_refused", "Authorization Violation"},
		"NATS without TLS":         {[]string{on("tls", open)}, "bus.driver_refused", "secure connection not available"},
		"NATS, unknown authority":  {[]string{on("nats", secure)}, "bus.driver_refused", "unknown authority"},
		"NATS, another authority":  {[]string{on("tls", secure), "MEGA_NATS_TLS_CA=" + cert2}, "bus.driver_refused", "unknown authority"},
		"NATS, another name":       {[]string{on("tls", named), "MEGA_NATS_TLS_CA=" + foreign}, "bus.driver_refused", "cannot validate certificate for 127.0.0.1"},
		"NATS, expired":            {[]string{on("tls", expired), "MEGA_NATS_TLS_CA=" + old}, "bus.driver_refused", "has expired"},
		"NATS, own certificate":    {[]string{on("tls", mutual), "MEGA_NATS_TLS_CA=" + cert2}, "bus.driver_refused", "certificate required"},
		"NATS, no permissions":     {[]string{strings.Replace(on("nats", barred), "://", "://u:p@", 1)}, "bus.driver_refused", "do not include: publish to ev.>"},
		"a NATS server":            {[]string{cache + "redis://" + bus}, "lock.driver_refused", "A NATS server answers at the address of the Redis"},
		"a NATS server, TLS":       {[]string{cache + "rediss://" + bus}, "lock.driver_refused", "A NATS server answers at the address of the Redis"},
		"an HTTP server, TLS":      {[]string{cache + "rediss-cluster://" + web.Listener.Addr().String()}, "lock.driver_refused", "An HTTP server answers"},
		"sentinels of NATS, TLS":   {[]string{cache + "rediss-sentinel://" + bus + "/mega"}, "lock.driver_refused", "A NATS server answers"},
		"NATS, a Redis":            {[]string{"MEGA_NATS_URL=nats://" + plain.Addr()}, "bus.driver_refused", "A Redis answers at the address of the NATS server"},
		"NATS, an HTTP server":     {[]string{"MEGA_NATS_URL=nats://" + web.Listener.Addr().String()}, "bus.driver_refused", "An HTTP server answers"},
		"NATS, nkeys":              {[]string{on("nats", open), "MEGA_NATS_NKEY_FILE=" + seed(t)}, "bus.driver_refused", "nkeys not supported"},
		"NATS, no credentials":     {[]string{on("nats", open), "MEGA_NATS_CREDS_FILE=" + cert2}, "bus.driver_refused", "no nkey seed found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for try := 1; ; try++ {
				p, stderr := process(append(x.environ, "MEGA_BOOT_WAIT_FOR=10s")...)
				f := fail(t, p, mega.App("main", mega.Routes(hello)))
				retried := strings.Contains(stderr.String(), "waiting for the server")
				if retried && try < 3 {
					continue // a server that gets no processor for a second is waited for, but not each time
				}
				if f.Code != x.code || f.Exit != failure.ExitConfig || !strings.Contains(f.Error(), x.say) || retried {
					t.Errorf("%d %s: %v\n%s", f.Exit, f.Code, f, stderr)
				}
				return
			}
		})
	}
}

// Limits have the template of locks: one without a hash tag does not fit a Cluster for
// limits, although the locks elsewhere need it.
func TestPanelOfATemplateThatDoesNotFitACluster(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t, redistest.Options{})
	const cluster = "redis-cluster://127.0.0.1:1" // the template is refused before a connection
	for code, environ := range map[string][]string{
		"lock.driver_refused":  {"MEGA_CACHE_MAIN_URL=" + cluster},
		"limit.driver_refused": {"MEGA_CACHE_MAIN_URL=" + plain.URL(), "MEGA_CACHE_RATES_URL=" + cluster, "MEGA_LOCK_CACHE=main", "MEGA_LIMIT_CACHE=rates"},
	} {
		p, _ := process(append(environ, "MEGA_LOCK_REDIS_KEY=%s")...)
		f := fail(t, p, mega.App("main", mega.Routes(hello)))
		if f.Code != code || f.Exit != failure.ExitConfig || !strings.Contains(f.Error(), "hash tag") || !strings.Contains(strings.Join(f.Actions, "\n"), "MEGA_LOCK_REDIS_KEY=mega:{%s}") {
			t.Errorf("%s: %d %s: %v\n%q", code, f.Exit, f.Code, f, f.Actions)
		}
	}
}

// A cache whose URL has the wrong scheme for TLS never works, and may leave the
// client without an answer.
func TestCacheWithTheWrongSchemeForTLSEndsTheBootAtOnce(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t, redistest.Options{}).Addr()
	sentinels := strings.Join(redistest.StartSentinels(t, 0, redistest.Options{}).Addrs(), ",") + "/mega"
	_, encrypted, _ := redistest.StartTLS(t, certificate.Certificate{})
	for url, say := range map[string]string{
		"redis://" + encrypted:                    "use the scheme rediss://",
		"rediss://" + plain:                       "use the scheme redis://",
		"redis-cluster://" + encrypted:            "use the scheme rediss-cluster://",
		"rediss-cluster://" + plain:               "use the scheme redis-cluster://",
		"redis-sentinel://" + encrypted + "/mega": "use the scheme rediss-sentinel://",
		"rediss-sentinel://" + sentinels:          "use the scheme redis-sentinel://",
	} {
		t.Run(say, func(t *testing.T) {
			t.Parallel()
			p, stderr := process("MEGA_CACHE_MAIN_URL="+url, "MEGA_LOCK_DRIVER=memory", "MEGA_BOOT_WAIT_FOR=1m")
			began := time.Now()
			f := fail(t, p, mega.App("main", mega.OnStart("use", func(goredis.UniversalClient, context.Context) {})))
			if f.Code != "cache.refused" || f.Exit != failure.ExitConfig || !strings.Contains(f.Error(), say) || !strings.Contains(strings.Join(f.Actions, ""), strings.TrimPrefix(say, "use the scheme ")) {
				t.Errorf("%d %s: %v\n%q\n%s", f.Exit, f.Code, f, f.Actions, stderr)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A client of sentinels repeats a refused attempt for longer than one call may take. On
// a busy machine the look at the server may need a second attempt of the boot.
func TestCacheBehindSentinelsThatRefuseEndsTheBootAtOnce(t *testing.T) {
	t.Parallel()
	_, encrypted, _ := redistest.StartTLS(t, certificate.Certificate{})
	bus := strings.TrimPrefix(natstest.Start(t, natstest.Options{}).URL(), "nats://")
	for addr, want := range map[string]string{
		encrypted: "A certificate is refused", // by an authority that this machine does not know
		bus:       "A NATS server answers",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p, stderr := process("MEGA_CACHE_MAIN_URL=rediss-sentinel://"+addr+"/mega", "MEGA_LOCK_DRIVER=memory", "MEGA_BOOT_WAIT_FOR=1m")
			f := fail(t, p, mega.App("main", mega.OnStart("use", func(goredis.UniversalClient, context.Context) {})))
			if f.Code != "cache.refused" || f.Exit != failure.ExitConfig || !strings.Contains(f.Text, want) || strings.Contains(strings.Join(f.Actions, ""), "rediss://") {
				t.Errorf("%d %s: %v\n%q\n%s", f.Exit, f.Code, f, f.Actions, stderr)
			}
		})
	}
}

func TestActionFitsTheStateOfTheServer(t *testing.T) {
	t.Parallel()
	few := redistest.Start(t, redistest.Options{Config: []string{"min-replicas-to-write 1"}})
	full := redistest.Start(t, redistest.Options{Config: []string{"maxmemory 1"}})
	cert, key := certificate.Certificate{}.Write(t)
	mapping := natstest.Start(t, natstest.Options{Config: fmt.Sprintf("authorization: {users: [{user: other}]}, tls: {cert_file: %q, key_file: %q, ca_file: %q, verify_and_map: true}", cert, key, cert)})
	for action, environ := range map[string][]string{
		"Start its replicas":                     {"MEGA_CACHE_MAIN_URL=" + few.URL()},
		"maxmemory in redis.conf":                {"MEGA_CACHE_MAIN_URL=" + full.URL()},
		"Repair its persistence":                 {"MEGA_CACHE_MAIN_URL=" + withoutSnapshots(t).URL()},
		"Correct the host name":                  {"MEGA_CACHE_MAIN_URL=redis://" + strings.Repeat("x", 64)}, // no DNS has so long a name
		"or nats.tls.cert":                       {"MEGA_NATS_URL=" + mapping.URL(), "MEGA_NATS_TLS_CA=" + cert, "MEGA_NATS_TLS_CERT=" + cert, "MEGA_NATS_TLS_KEY=" + key},
		"MEGA_NATS_CREDS_FILE=/path/of/the/file": {"MEGA_NATS_URL=nats://127.0.0.1:1", "MEGA_NATS_CREDS_FILE=/nowhere/creds"},
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			p, _ := process(append(environ, "MEGA_BOOT_WAIT_FOR=0")...)
			if f := fail(t, p, mega.App("main", mega.Routes(hello))); len(f.Actions) == 0 || !strings.Contains(f.Actions[0], action) {
				t.Errorf("%v: %q", f, f.Actions)
			}
		})
	}
}

// withoutSnapshots returns a server that takes no writes, because its snapshot has
// failed.
func withoutSnapshots(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.Start(t, redistest.Options{Config: []string{"save 3600 1", "dbfilename snapshot"}})
	if err := os.Mkdir(filepath.Join(s.Dir(), "snapshot"), 0o700); err != nil { // where the file belongs
		t.Fatal(err)
	}
	if _, err := s.Do("BGSAVE"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if info, err := s.Info("persistence"); err == nil && info["rdb_last_bgsave_status"] == "err" {
			return s
		}
	}
	t.Fatal("the snapshot has not failed")
	return nil
}

// seed returns a file with the seed of an nkey, which is from the documentation.
func seed(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(file, []byte("SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
