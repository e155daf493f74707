package boot_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/lock"
)

func TestConsoleIsServedInDevAndWhereItIsConfigured(t *testing.T) {
	for _, x := range []struct {
		env, on string
		want    int
	}{
		{"dev", "", 200},
		{"dev", "false", 404},
		{"production", "", 404},
		{"production", "true", 200},
		{"test", "", 404},
	} {
		p, _ := process("MEGA_ENV="+x.env, "MEGA_OPS_CONSOLE="+x.on)
		r := start(t, p, mega.App("main", mega.Routes(hello)))
		if status, page := get(t, r.Report().Ops+"/console"); status != x.want {
			t.Errorf("env %s, ops.console %q: %d, want %d\n%s", x.env, x.on, status, x.want, page)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// consoleAs requests a page of the console with some headers.
func consoleAs(t *testing.T, r *boot.Running, path string, headers map[string]string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.Report().Ops+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		q.Header.Set(name, value)
	}
	q.Host = headers["Host"]
	return send(t, q)
}

func basic(password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:"+password))
}

func TestConsoleHasTheRulesOfTheOpsListener(t *testing.T) {
	for _, x := range []struct {
		name, addr, token string
		headers           map[string]string
		want              int
	}{
		{"loopback", "127.0.0.1:0", "", nil, 200},
		{"loopback, a foreign host", "127.0.0.1:0", "", map[string]string{"Host": "evil.example"}, 403},
		{"loopback, a page of another site", "127.0.0.1:0", "", map[string]string{"Origin": "http://evil.example"}, 403},
		{"loopback, no token", "127.0.0.1:0", opsToken, nil, 401},
		{"loopback, the token as a password", "127.0.0.1:0", opsToken, map[string]string{"Authorization": basic(opsToken)}, 200},
		{"loopback, the token", "127.0.0.1:0", opsToken, map[string]string{"Authorization": "Bearer " + opsToken}, 200},
		{"everywhere, no token is set", "0.0.0.0:0", "", nil, 403},
		{"everywhere, no token", "0.0.0.0:0", opsToken, nil, 401},
		{"everywhere, another password", "0.0.0.0:0", opsToken, map[string]string{"Authorization": basic("another")}, 401},
		{"everywhere, the token as a password", "0.0.0.0:0", opsToken, map[string]string{"Authorization": basic(opsToken)}, 200},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, _ := process("MEGA_ENV=dev", "MEGA_OPS_ADDR="+x.addr, "MEGA_OPS_TOKEN="+x.token)
			r := start(t, p, mega.App("main", mega.Routes(hello)))
			for _, path := range []string{"/console", "/console/locks", "/console/console.js"} {
				if status, page := consoleAs(t, r, path, x.headers); status != x.want {
					t.Errorf("%s: %d, want %d\n%s", path, status, x.want, page)
				}
			}
			if strings.HasPrefix(x.headers["Authorization"], "Basic") && x.want == 200 {
				if status, _ := consoleAs(t, r, "/ops/config", x.headers); status != 401 {
					t.Errorf("a password opens /ops/config: %d", status)
				}
			}
		})
	}
}

func TestConsoleFollowsTheProgramUntilItsEnd(t *testing.T) {
	p, _ := process("MEGA_ENV=dev", "MEGA_SHUTDOWN_TIMEOUT=60s")
	hold, held := make(chan struct{}), make(chan struct{})
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.Run("hold", func(c *megactx.Ctx) error {
		<-hold
		return c.Lock.With("product:42", func(c *megactx.Ctx) error {
			close(held)
			<-c.Done()
			return nil
		}, lock.Label("the holder"))
	})))
	q, err := http.NewRequestWithContext(context.Background(), http.MethodGet, r.Report().Ops+"/console/locks", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Accept", "text/event-stream")
	w, err := (&http.Transport{}).RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }()
	lines := bufio.NewScanner(w.Body)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the stream ended before %q: %v", text, lines.Err())
	}
	until("No lock is held")
	close(hold)
	<-held
	until("the holder")
	if err := r.Stop(); err != nil { // it names requests that it cuts off
		t.Error(err)
	}
	for lines.Scan() { // to its end
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
}
