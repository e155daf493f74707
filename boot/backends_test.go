package boot_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/internal/failure"
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
	for began := time.Now(); !strings.Contains(log.String(), line) && time.Since(began) < 10*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("%q is logged %d times:\n%s", line, n, log)
	}
}

// A process that uses no lock and is not probed reports the loss all the same.
func TestLossIsFoundByAnIdleProcess(t *testing.T) {
	t.Parallel()
	locks := redistest.Start(t, redistest.Options{})
	p, stderr := process("MEGA_CACHE_MAIN_URL="+locks.URL(), "MEGA_LOG_FORMAT=json")
	start(t, p, mega.App("main", mega.Routes(hello)))
	if err := locks.Kill(); err != nil {
		t.Fatal(err)
	}
	eventuallyOnce(t, stderr, "lock backend lost")
}

// A refusal of credentials or permissions is the same with every attempt, so it
// ends the boot without waiting for boot.wait_for (L21).
func TestRefusalEndsTheBootAtOnce(t *testing.T) {
	t.Parallel()
	guarded := redistest.Start(t, redistest.Options{Password: "swordfish"})
	limited := redistest.Start(t, redistest.Options{Users: []string{"ann on >swordfish ~other:* &* +@all"}})
	token := natstest.Start(t, natstest.Options{Token: "swordfish"})
	for name, x := range map[string]struct{ setting, code, says string }{
		"a wrong password": {"MEGA_CACHE_MAIN_URL=redis://:hunter2@" + guarded.Addr(), "lock.driver_refused", "WRONGPASS"},
		"no password":      {"MEGA_CACHE_MAIN_URL=redis://" + guarded.Addr(), "lock.driver_refused", "NOAUTH"},
		"no permission":    {"MEGA_CACHE_MAIN_URL=redis://ann:swordfish@" + limited.Addr(), "lock.driver_refused", "NOPERM"},
		"a wrong token":    {"MEGA_NATS_URL=nats://hunter2@" + strings.TrimPrefix(token.URL(), "nats://"), "bus.driver_refused", "Authorization Violation"},
		"no token":         {"MEGA_NATS_URL=" + token.URL(), "bus.driver_refused", "Authorization Violation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, stderr := process(x.setting, "MEGA_BOOT_WAIT_FOR=1h")
			f := fail(t, p, mega.App("main", mega.Routes(hello)))
			if f.Code != x.code || f.Exit != failure.ExitConfig || !strings.Contains(f.Error(), x.says) || strings.Contains(stderr.String(), "waiting for the server") {
				t.Errorf("%d %s: %v\n%s", f.Exit, f.Code, f, stderr)
			}
		})
	}
}
