//go:build linux || darwin

package boot_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/testkit/output"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

// tries is an app that reports whether it gets a lock at once.
func tries(held chan struct{}) mega.Option {
	return mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			_, err := c.Lock.TryAcquire("k")
			if errors.Is(err, lock.ErrNotAcquired) {
				return c.Text(200, "busy")
			}
			return c.Text(200, "free")
		})
		r.Get("/hold", func(c *megactx.Ctx) error {
			return c.Lock.With("k", func(*megactx.Ctx) error { held <- struct{}{}; <-held; return nil })
		})
	}))
}

// Environments that share a server exclude each other's locks only within a
// namespace, and say which one it is (L24).
func TestNamespaceSeparatesEnvironments(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	for driver, at := range map[string]string{"redis": "MEGA_CACHE_MAIN_URL=" + server.URL(), "cluster": "MEGA_CLUSTER_SOCKET=" + filepath.Join(shortdir.New(t), "s")} {
		t.Run(driver, func(t *testing.T) {
			running := func(namespace string) (string, *output.Buffer) {
				p, log := process(at, "MEGA_LOCK_NAMESPACE="+namespace, "MEGA_LOG_FORMAT=text")
				return start(t, p, tries(nil)).Report().Apps[0].URL, log
			}
			held := make(chan struct{})
			p, log := process(at, "MEGA_LOCK_NAMESPACE=staging", "MEGA_LOG_FORMAT=text")
			holder := start(t, p, tries(held)).Report()
			done := make(chan struct{})
			go func() { defer close(done); get(t, holder.Apps[0].URL+"/hold") }()
			<-held
			if !strings.Contains(log.String(), "namespace staging, format ") || holder.Lock.Namespace != "staging" || holder.Lock.Format == "" {
				t.Errorf("the report is %+v\n%s", holder.Lock, log)
			}
			for namespace, want := range map[string]string{"staging": "busy", "production": "free", "": "free"} {
				url, log := running(namespace)
				if _, body := get(t, url); body != want {
					t.Errorf("in %q the lock is %s, want %s", namespace, body, want)
				}
				if namespace == "" && !strings.Contains(log.String(), "namespace none, format ") {
					t.Errorf("the report is\n%s", log)
				}
			}
			held <- struct{}{}
			<-done
		})
	}
}
