package boot_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"maps"
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
			if has := x.addr == "127.0.0.1:0" || x.token != ""; r.Report().Console != has {
				t.Errorf("the report has the console: %v, want %v", !has, has)
			}
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

func TestActionsOfTheConsoleAreAllowedByConfiguration(t *testing.T) {
	same := map[string]string{"Sec-Fetch-Site": "same-origin"}
	authorized := map[string]string{"Sec-Fetch-Site": "same-origin", "Authorization": basic(opsToken)}
	for _, x := range []struct {
		name     string
		environ  []string
		headers  map[string]string
		want     int
		released bool
	}{
		{"dev, loopback", []string{"MEGA_ENV=dev"}, same, 303, true},
		{"dev, loopback, by the origin alone", []string{"MEGA_ENV=dev"}, map[string]string{"Origin": "self"}, 303, true},
		{"dev, loopback, no statement of the browser", []string{"MEGA_ENV=dev"}, nil, 403, false},
		{"dev, loopback, a page of another site", []string{"MEGA_ENV=dev"}, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403, false},
		{"dev, loopback, a page of a neighbour", []string{"MEGA_ENV=dev"}, map[string]string{"Sec-Fetch-Site": "same-site"}, 403, false},
		{"dev, loopback, another origin", []string{"MEGA_ENV=dev"}, map[string]string{"Origin": "http://evil.example"}, 403, false},
		{"dev, loopback, no origin", []string{"MEGA_ENV=dev"}, map[string]string{"Origin": "null"}, 403, false},
		{"dev, loopback, a foreign host", []string{"MEGA_ENV=dev"}, map[string]string{"Sec-Fetch-Site": "same-origin", "Host": "evil.example"}, 403, false},
		{"dev, loopback, a token that is not sent", []string{"MEGA_ENV=dev", "MEGA_OPS_TOKEN=" + opsToken}, same, 401, false},
		{"dev, loopback, the token", []string{"MEGA_ENV=dev", "MEGA_OPS_TOKEN=" + opsToken}, authorized, 303, true},
		{"dev, loopback, off", []string{"MEGA_ENV=dev", "MEGA_OPS_ACTIONS=false"}, same, 403, false},
		{"dev, everywhere, the token", []string{"MEGA_ENV=dev", "MEGA_OPS_ADDR=0.0.0.0:0", "MEGA_OPS_TOKEN=" + opsToken}, authorized, 403, false},
		{"dev, everywhere, on, no token is set", []string{"MEGA_ENV=dev", "MEGA_OPS_ADDR=0.0.0.0:0", "MEGA_OPS_ACTIONS=true"}, same, 403, false},
		{"dev, everywhere, on, no token", []string{"MEGA_ENV=dev", "MEGA_OPS_ADDR=0.0.0.0:0", "MEGA_OPS_ACTIONS=true", "MEGA_OPS_TOKEN=" + opsToken}, same, 401, false},
		{"dev, everywhere, on, the token", []string{"MEGA_ENV=dev", "MEGA_OPS_ADDR=0.0.0.0:0", "MEGA_OPS_ACTIONS=true", "MEGA_OPS_TOKEN=" + opsToken}, authorized, 303, true},
		{"production, console", []string{"MEGA_ENV=production", "MEGA_OPS_CONSOLE=true"}, same, 403, false},
		{"production, actions", []string{"MEGA_ENV=production", "MEGA_OPS_ACTIONS=true"}, same, 403, false},
		{"production, both", []string{"MEGA_ENV=production", "MEGA_OPS_CONSOLE=true", "MEGA_OPS_ACTIONS=true"}, same, 303, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, stderr := process(append([]string{"MEGA_LOG_FORMAT=text"}, x.environ...)...)
			held, lost := make(chan struct{}), make(chan error, 1)
			r := start(t, p, mega.App("main", mega.Routes(hello), mega.Run("hold", func(c *megactx.Ctx) error {
				lost <- c.Lock.With("product:42", func(c *megactx.Ctx) error {
					close(held)
					<-c.Done()
					return context.Cause(c)
				})
				return nil
			})))
			<-held
			_, page := consoleAs(t, r, "/console/lock?key=product:42", x.headers)
			status, body := postForm(t, r, x.headers, "key=product:42&reason=stuck+since+noon")
			if status != x.want {
				t.Errorf("%d, want %d\n%s", status, x.want, body)
			}
			if form := strings.Contains(page, `<form method="post"`); form != (x.want == 303) && maps.Equal(x.headers, same) {
				t.Errorf("the form is on the page: %v\n%s", form, page)
			}
			if !x.released {
				if err := r.Stop(); err != nil || strings.Contains(stderr.String(), "by force") {
					t.Errorf("%v, or it was released:\n%s", err, stderr)
				}
				return
			}
			cause, ok := errors.AsType[*lock.LostError](<-lost)
			if !ok || cause.Reason != "stuck since noon" || !strings.Contains(cause.By.Label, "by the console") {
				t.Errorf("the holder receives %+v", cause)
			}
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
			if text := stderr.String(); !strings.Contains(text, "lock released by force") || !strings.Contains(text, "by.console") || !strings.Contains(text, "stuck since noon") {
				t.Errorf("logged:\n%s", text)
			}
		})
	}
}

// postForm sends the form of a release. The origin "self" is the one of the listener.
func postForm(t *testing.T, r *boot.Running, headers map[string]string, form string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.Report().Ops+"/console/release", strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, value := range headers {
		q.Header.Set(name, strings.ReplaceAll(value, "self", "http://"+q.URL.Host))
	}
	if host := headers["Host"]; host != "" {
		q.Host = host
	}
	return send(t, q)
}

func TestReleaseByTheConsoleNeedsAReason(t *testing.T) {
	p, _ := process("MEGA_ENV=dev")
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	same := map[string]string{"Sec-Fetch-Site": "same-origin"}
	for form, want := range map[string]int{
		"key=a&reason=":                               400,
		"key=a&reason=+":                              400,
		"reason=stuck":                                400,
		"key=a&reason=stuck":                          303,
		"key=a&reason=stuck&fence=x":                  400,
		"key=a%ff&reason=stuck":                       400,
		"key=a&reason=stuck&worker=2":                 303, // a process without workers has none to choose
		"key=a&reason=" + strings.Repeat("x", 17<<10): 400,
	} {
		if status, body := postForm(t, r, same, form); status != want {
			t.Errorf("%.40s: %d, want %d\n%s", form, status, want, body)
		}
	}
	for _, path := range []string{"/ops/lock/release", "/console", "/console/lock"} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.Report().Ops+path, strings.NewReader(`{"key":"a","reason":"b"}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Sec-Fetch-Site", "same-origin")
		if status, _ := send(t, q); status != 405 {
			t.Errorf("POST %s: %d", path, status)
		}
	}
}

// A link on another site can open the page of a lock with any query.
func TestNoticeOfAReleaseIsThatOfTheConsole(t *testing.T) {
	p, _ := process("MEGA_ENV=dev")
	r := start(t, p, mega.App("main", mega.Routes(hello)))
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.Report().Ops+"/console/release", strings.NewReader("key=a%26b&reason=stuck&worker=2"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Sec-Fetch-Site", "same-origin")
	w, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Body.Close()
	after := w.Header.Get("Location")
	for path, want := range map[string]bool{
		after: true,
		strings.Replace(after, "released=0", "released=9", 1): false,
		strings.Replace(after, "key=a", "key=b", 1):           false,
		strings.Replace(after, "worker=2", "worker=1", 1):     false,
		"/console/lock?key=a&released=0":                      false,
	} {
		if _, page := get(t, r.Report().Ops+path); strings.Contains(page, `role="status">Nothing was released`) != want || strings.Contains(page, "Released by force") {
			t.Errorf("%s: want a notice: %v\n%s", path, want, page)
		}
	}
}
