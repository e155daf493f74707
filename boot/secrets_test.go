//go:build linux || darwin

package boot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// vault is a section with every type of secret.
type vault struct {
	Token config.Secret `key:"token"`
	Link  config.URL    `key:"link"`
	Text  string        `key:"text"` // which holds a URL all the same
}

// The credentials of every URL. The user and the query value stand for those
// whose names do not tell that they are secret.
const (
	password = "hunter2hunter2"
	login    = "annalogin"
	queried  = "sesame-sesame"
)

// shows reports whether a text shows one of them.
func shows(text string) bool {
	return strings.Contains(text, password) || strings.Contains(text, login) || strings.Contains(text, queried)
}

// secretKeys are the variables of all keys whose value is, or has in it, a
// secret, each with one.
func secretKeys(t reflect.Type, path string, found map[string]string) {
	for f := range t.Fields() {
		key, ok := f.Tag.Lookup("key")
		if !ok {
			continue
		}
		at := strings.TrimPrefix(path+"."+key, ".")
		switch ft := f.Type; {
		case ft == reflect.TypeFor[config.Secret]():
			found[settings.EnvName(at)] = password
		case ft == reflect.TypeFor[string]() && path == "vault":
			found[settings.EnvName(at)] = "https://" + login + ":" + password + "@example.org/?door=" + queried
		case ft == reflect.TypeFor[config.URL]():
			scheme, _, _ := strings.Cut(f.Tag.Get("schemes"), "|")
			if scheme == "" {
				scheme = "postgres"
			}
			found[settings.EnvName(at)] = scheme + "://" + login + ":" + password + "@127.0.0.1:1?protocol=" + queried
		case ft.Kind() == reflect.Map:
			secretKeys(ft.Elem(), at+".main", found)
		case ft.Kind() == reflect.Struct:
			secretKeys(ft, at, found)
		}
	}
}

func TestNoSecretIsShownAnywhere(t *testing.T) {
	found := map[string]string{}
	secretKeys(reflect.TypeFor[config.Config](), "", found)
	secretKeys(reflect.TypeFor[vault](), "vault", found)
	delete(found, "MEGA_NATS_TOKEN") // credentials beside those of the URL contradict them
	delete(found, "MEGA_NATS_PASSWORD")
	delete(found, "MEGA_OPS_TOKEN") // the pages below would require it
	if len(found) < 4 {
		t.Fatalf("found only %v", found)
	}
	environ := []string{"MEGA_LOCK_DRIVER=memory", "MEGA_BUS_DRIVER=memory", "MEGA_LOG_LEVEL=debug", "MEGA_ENV=dev", "XDG_RUNTIME_DIR=" + shortdir.New(t)}
	for name, value := range found {
		environ = append(environ, name+"="+value)
	}
	p, stderr := process(environ...)
	r := start(t, p, mega.App("main", mega.Routes(hello), mega.Config[vault]("vault"),
		mega.Ready("vault", func(v vault, _ context.Context) error {
			return fmt.Errorf("dial %q with %s: connection refused", v.Link.Reveal(), v.Token.Reveal())
		}),
		mega.OnStart("log in", func(v vault, log *slog.Logger, _ context.Context) error {
			log.Info("dialing "+v.Text, "url", v.Link.Reveal(), "error", fmt.Errorf("login %q with %s", v.Link.Reveal(), v.Token.Reveal()),
				"all", []string{v.Text, v.Token.Reveal()}, slog.Group("to", "link", struct{ At *string }{&v.Text}))
			return nil
		}),
	))
	if _, body := get(t, r.Report().Ops+"/readyz?verbose"); !strings.Contains(body, "connection refused") {
		t.Errorf("the check says nothing: %s", body)
	}
	for _, path := range []string{
		"/", "/livez", "/readyz", "/readyz?verbose", "/startupz", "/metrics", "/ops/boot", "/ops/config", "/ops/locks", "/ops/routes",
		"/ops/stats", "/ops/bus", "/ops/process", "/ops/build", "/debug/pprof/cmdline",
	} {
		if _, body := get(t, r.Report().Ops+path); shows(body) {
			t.Errorf("%s shows a secret:\n%s", path, body)
		}
	}
	client := dialAdmin(t, p)
	for _, path := range []string{"/boot", "/config", "/routes", "/process", "/stats"} {
		var body json.RawMessage
		if err := client.Get(t.Context(), path, &body); err != nil || shows(string(body)) {
			t.Errorf("%s: %v, %s", path, err, body)
		}
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if shows(stderr.String()) {
		t.Errorf("the log shows a secret:\n%s", stderr)
	}
}

func TestPanelShowsNoSecret(t *testing.T) {
	p, stderr := process("MEGA_VAULT_TOKEN="+password, "MEGA_VAULT_TEXT=postgres://"+login+":"+password+"@db", "MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_APPS_MAIN_ADDR=127.0.0.1:0")
	options := []mega.Option{mega.App("main", mega.Routes(hello), mega.Config[vault]("vault"),
		mega.OnStart("log in", func(v vault, _ context.Context) error {
			return fmt.Errorf("login %q with %q, then redis://%s@cache?x=%s", v.Text, v.Token.Reveal(), login, queried)
		}),
	)}
	for _, p.JSON = range []bool{false, true} {
		if status := boot.Main(t.Context(), p, options...); status != failure.ExitInternal {
			t.Errorf("exit status %d", status)
		}
	}
	if _, err := boot.Start(t.Context(), p, options...); err == nil || shows(err.Error()) {
		t.Errorf("the error is %v", err)
	}
	if text := stderr.String(); shows(text) || strings.Count(text, "redis://***@cache?x=***") < 2 {
		t.Errorf("the panels are:\n%s", text)
	}
}

func TestStopBeforeTheStartShowsNoSecret(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	p, stderr := process("MEGA_VAULT_TOKEN="+password, "MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_APPS_MAIN_ADDR=127.0.0.1:0")
	status := boot.Main(ctx, p, mega.App("main", mega.Routes(hello), mega.Config[vault]("vault"),
		mega.OnStop("log out", func(v vault, _ context.Context) error { return errors.New("refused \x1b[2J: " + v.Token.Reveal()) }),
		mega.OnStart("log in", func(context.Context) { stop() }),
	))
	if text := stderr.String(); status != failure.ExitCut || shows(text) || strings.Contains(text, "\x1b") || !strings.Contains(text, "log out") {
		t.Errorf("exit status %d:\n%q", status, text)
	}
}

// An error may quote what a server or a file said.
func TestPanelHasNothingThatATerminalObeys(t *testing.T) {
	p, stderr := process("MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_APPS_MAIN_ADDR=127.0.0.1:0")
	app := mega.App("main", mega.Routes(hello), mega.OnStart("log in", func(context.Context) error {
		return errors.New("refused \x1b[2J\u009b2J\u202e")
	}))
	for _, p.JSON = range []bool{false, true} {
		if status := boot.Main(t.Context(), p, app); status != failure.ExitInternal {
			t.Errorf("exit status %d", status)
		}
	}
	if text := stderr.String(); strings.ContainsAny(text, "\x1b\u009b\u202e") || strings.Count(text, `\u009b2J`) < 2 {
		t.Errorf("the panels are:\n%q", text)
	}
}
