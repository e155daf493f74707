//go:build linux || darwin

package guide_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// The apps of sample/multi as two processes are one shop, as the page says: an
// order in one excludes a refund in the other, and each is on the page of the
// other app at once.
func TestTwoProcessesAreOneShop(t *testing.T) {
	exe := executable(t, multi)
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		shopOfTwo(t, exe, "MEGA_CLUSTER_SOCKET=auto")
	})
	t.Run("redis and NATS", func(t *testing.T) {
		t.Parallel()
		cache, messages := redistest.Start(t, redistest.Options{}), natstest.Start(t, natstest.Options{})
		shopOfTwo(t, exe, "MEGA_CACHE_MAIN_URL="+cache.URL(), "MEGA_NATS_URL="+messages.URL())
	})
}

func shopOfTwo(t *testing.T, exe string, drivers ...string) {
	t.Helper()
	drivers = append(drivers, "XDG_RUNTIME_DIR="+t.TempDir())
	t.Run("pages", func(t *testing.T) {
		web, admin := split(t, exe, drivers)
		ofWeb, ofAdmin := listen(t, web+"/live"), listen(t, admin+"/live")
		post(t, web+"/orders", `{"product":"lamp","quantity":2}`, http.StatusCreated, `"id":1`)
		ofAdmin.awaits(t, `"product":"lamp","quantity":2,"refunded":false`)
		post(t, admin+"/refunds", `{"order":1}`, http.StatusOK, `"refunded":true`)
		ofWeb.awaits(t, `"product":"lamp","quantity":2,"refunded":true`)
	})
	t.Run("locks", func(t *testing.T) {
		web, admin := split(t, exe, append(drivers, "MEGA_PICKING_TIME=1m", "MEGA_LOCK_WAIT=100ms"))
		ofAdmin, ordered := listen(t, admin+"/live"), make(chan struct{})
		go func() {
			defer close(ordered)
			post(t, web+"/orders", `{"product":"lamp","quantity":2}`, http.StatusConflict, `"lock.lost"`)
		}()
		ofAdmin.awaits(t, "data: 1") // lock in use
		await(t, admin+"/locks", `"label":"order"`)
		post(t, admin+"/restocks", `{"product":"lamp","quantity":5}`, http.StatusConflict, `"lock.not_acquired"`)
		post(t, admin+"/locks/release", `{"key":"product:lamp","reason":"stuck"}`, http.StatusOK, `"released":1`)
		<-ordered
		await(t, web+"/", `data-key="lamp" data-state="20"`)
	})
}

// split serves each app of sample/multi in a process of its own, on a new
// database, and returns their addresses.
func split(t *testing.T, exe string, drivers []string) (web, admin string) {
	t.Helper()
	database := "MEGA_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "shop.db")
	serve := func(app string) string {
		addr, ops := redistest.FreeAddr(t), redistest.FreeAddr(t)
		own := []string{database, "MEGA_OPS_ADDR=" + ops, "MEGA_APPS_" + strings.ToUpper(app) + "_ADDR=" + addr}
		t.Cleanup(started(t, exe, multi, slices.Concat(drivers, own), nil, "http://"+ops, "--only", app))
		return "http://" + strings.Replace(addr, "127.0.0.1", "localhost", 1)
	}
	return serve("web"), serve("admin")
}

// post sends JSON and wants an answer.
func post(t *testing.T, url, body string, status int, want string) {
	t.Helper()
	answer, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	var got strings.Builder
	_, _ = bufio.NewReader(answer.Body).WriteTo(&got)
	if answer.StatusCode != status || !strings.Contains(got.String(), want) {
		t.Errorf("%s answers %d %s, want %d with %s", url, answer.StatusCode, got.String(), status, want)
	}
}

// stream is a page that listens.
type stream struct{ lines chan string }

// listen opens a stream, and returns when it is subscribed.
func listen(t *testing.T, url string) *stream {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{make(chan string, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in := bufio.NewScanner(answer.Body); in.Scan(); {
			s.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		leave()
		_ = answer.Body.Close()
		<-done
	})
	s.awaits(t, "event: ready")
	return s
}

func (s *stream) awaits(t *testing.T, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	var got strings.Builder
	for {
		select {
		case line := <-s.lines:
			if strings.Contains(line, want) {
				return
			}
			fmt.Fprintln(&got, line)
		case <-late:
			t.Fatalf("the stream has no %s:\n%s", want, &got)
		}
	}
}
