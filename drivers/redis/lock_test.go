package redis_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/lock/driver"
)

func token() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// openLock opens a driver for a test that is not about opening one. Each of the
// dozen calls that this takes has to be answered within a second, which a
// machine that is busy may miss: what failed is tried again, twice. A refusal is final.
func openLock(ctx context.Context, c redis.Config) (d driver.Driver, err error) {
	for range 3 {
		if d, err = redis.OpenLock(ctx, c); !errors.Is(err, driver.ErrUnavailable) || strings.Contains(err.Error(), "NOPERM") {
			break
		}
	}
	return d, err
}

// open opens a driver that is closed with the test.
func open(t testing.TB, c redis.Config) driver.Driver {
	t.Helper()
	d, err := openLock(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return d
}

func openShared(t testing.TB) driver.Driver {
	t.Helper()
	return open(t, redis.Config{URL: shared.URL()})
}

// request is for a plain lock that may wait for long.
func request(key string) driver.Request {
	return driver.Request{Key: key, Token: token(), TTL: 10 * time.Second, Wait: 10 * time.Second, Slots: 1, Fences: 1,
		Holder: driver.Holder{App: "test", Host: "here", PID: 1, Label: `say "hi"`, Since: time.Now()}}
}

func acquire(t testing.TB, d driver.Driver, r driver.Request) (g driver.Grant) {
	t.Helper()
	err := answered(func() (err error) {
		if g, err = d.Acquire(t.Context(), r); err != nil {
			r.Token = token() // the clean-up bars the last one (L6)
		}
		return err
	})
	if err != nil {
		t.Fatalf("acquire %q: %v", r.Key, err)
	}
	return g
}

func release(t testing.TB, d driver.Driver, g driver.Grant) {
	t.Helper()
	if err := answered(func() error { return d.Release(t.Context(), g) }); err != nil {
		t.Fatalf("release %q: %v", g.Key, err)
	}
}

func TestReleaseHandsOver(t *testing.T) {
	a, b := openShared(t), openShared(t)
	first := acquire(t, a, request(t.Name()))
	got := make(chan driver.Grant, 1)
	go func() {
		g, err := b.Acquire(context.Background(), request(t.Name()))
		if err != nil {
			t.Error(err)
		}
		got <- g
	}()
	for {
		s, err := a.Inspect(t.Context(), t.Name())
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Waiters) == 1 {
			break
		}
	}
	start := time.Now()
	release(t, a, first)
	second := <-got
	t.Logf("handed over in %v", time.Since(start))
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	if r := b.Renew(t.Context(), []driver.Grant{second}); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	release(t, b, second)
	if err := b.Release(t.Context(), second); !errors.Is(err, driver.ErrLost) {
		t.Errorf("second release: got %v, want ErrLost", err)
	}
}

// soon waits for what the server or another goroutine does.
func soon(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(generous(10 * time.Second)); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
