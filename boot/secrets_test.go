//go:build linux || darwin

package boot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/config"
)

// vault is a section with every type of secret.
type vault struct {
	Token config.Secret `key:"token"`
	Link  config.URL    `key:"link"`
}

const password = "hunter2hunter2"

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
			found[config.EnvName(at)] = password
		case ft == reflect.TypeFor[config.URL]():
			scheme, _, _ := strings.Cut(f.Tag.Get("schemes"), "|")
			if scheme == "" {
				scheme = "postgres"
			}
			found[config.EnvName(at)] = scheme + "://ann:" + password + "@127.0.0.1:1"
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
	delete(found, "MEGA_NATS_TOKEN") // a token and a password contradict each other
	if len(found) < 4 {
		t.Fatalf("found only %v", found)
	}
	environ := []string{"MEGA_LOCK_DRIVER=memory", "MEGA_BUS_DRIVER=memory", "MEGA_LOG_LEVEL=debug", "MEGA_ENV=dev", "MEGA_NATS_USER=ann", "XDG_RUNTIME_DIR=" + runtimeDir(t)}
	for name, value := range found {
		environ = append(environ, name+"="+value)
	}
	p, stderr := process(environ...)
	r := start(t, p, boot.App("main", boot.Routes(hello), boot.Section(reflect.TypeFor[vault](), "vault"),
		boot.Ready("vault", func(v vault, _ context.Context) error {
			return fmt.Errorf("dial %q with %s: connection refused", v.Link.Reveal(), v.Token.Reveal())
		}),
	))
	if _, body := get(t, r.Report().Ops+"/readyz?verbose"); !strings.Contains(body, "connection refused") {
		t.Errorf("the check says nothing: %s", body)
	}
	for _, path := range []string{
		"/", "/livez", "/readyz", "/readyz?verbose", "/startupz", "/metrics", "/ops/boot", "/ops/config", "/ops/locks", "/ops/routes",
		"/ops/stats", "/ops/bus", "/ops/process", "/ops/build", "/debug/pprof/cmdline",
	} {
		if _, body := get(t, r.Report().Ops+path); strings.Contains(body, password) {
			t.Errorf("%s shows a secret:\n%s", path, body)
		}
	}
	client := dialAdmin(t, p)
	for _, path := range []string{"/boot", "/config", "/routes", "/process", "/stats"} {
		var body json.RawMessage
		if err := client.Get(t.Context(), path, &body); err != nil || strings.Contains(string(body), password) {
			t.Errorf("%s: %v, %s", path, err, body)
		}
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(stderr.String(), password) {
		t.Errorf("the log shows a secret:\n%s", stderr)
	}
}
