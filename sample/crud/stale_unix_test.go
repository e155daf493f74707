//go:build linux || darwin

package main

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock"
)

// TestASaleThatWasPausedIsRefusedAfterTheNextOne stops a shop that has the lock and
// waits for the database. Another shop sells meanwhile. The first one continues with
// a lease that is over.
func TestASaleThatWasPausedIsRefusedAfterTheNextOne(t *testing.T) {
	executable, err := build()
	if err != nil {
		t.Fatal(err)
	}
	file, server := filepath.Join(t.TempDir(), "shop.db"), redisServer(t)
	shops := make([]*shop, 2)
	for i := range shops {
		if shops[i], err = start(executable, []string{"MEGA_DATABASE_URL=sqlite://" + file, "MEGA_CACHE_MAIN_URL=" + server,
			"MEGA_LOCK_TTL=1s", "MEGA_LOCK_WAIT=1m"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shops[i].stop(t) })
	}
	path := shops[0].stock(t, 5)

	database, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = database.Close() }()
	writing, err := database.BeginTx(t.Context(), nil) // nobody else writes now
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		answer
		error
	}
	paused := make(chan result, 1)
	go func() {
		a, err := shops[0].send("POST", path+"/buy", `{"quantity":1}`, asJSON)
		paused <- result{a, err}
	}()
	awaitHolder(t, server, "product:"+filepath.Base(path))
	process := shops[0].cmd.Process
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Signal(syscall.SIGCONT) }()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the shop did not stop: %v, %v", status, err)
	}
	if err := writing.Rollback(); err != nil {
		t.Fatal(err)
	}

	next, err := shops[1].send("POST", path+"/buy", `{"quantity":2}`, asJSON)
	if err != nil || next.status != http.StatusOK {
		t.Fatalf("the next sale: %d %s, %v", next.status, next.body, err)
	}
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	late := <-paused
	// It depends on the moment of the stop whether the shop notices the loss of
	// its lock before the database does.
	if late.error != nil || late.status != http.StatusConflict || late.code() != "lock.stale" && late.code() != "lock.lost" {
		t.Errorf("the paused sale: %d %s, %v; want 409 lock.stale or lock.lost", late.status, late.body, late.error)
	}
	left, err := shops[1].send("GET", path, "", "Accept: application/json")
	if err != nil || !strings.Contains(left.body, `"stock":3,`) {
		t.Errorf("%s is left, %v; want a stock of 3", left.body, err)
	}
}

// awaitHolder returns when somebody holds the lock.
func awaitHolder(t *testing.T, server, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	driver, err := redis.OpenLock(ctx, redis.Config{URL: server})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := lock.New(driver, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	for ctx.Err() == nil {
		if state, err := locks.Inspect(ctx, key); err == nil && len(state.Holders) == 1 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("nobody holds %s", key)
}
