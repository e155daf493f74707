package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Calls in tests that are not about an outage.

// answered returns the result of call. If there was no answer in all of the time that
// a call has, the server got no processor, and answered repeats the call up to twice.
// It returns an error that comes sooner.
func answered(call func() error) (err error) {
	for range 3 {
		start := time.Now()
		if err = call(); !errors.Is(err, driver.ErrUnavailable) || time.Since(start) < driver.CallTimeout*9/10 {
			break
		}
	}
	return err
}

// refuses repeats a call that the server refuses, until the error names the reason:
// on a busy machine the time of a call may be over before the server's answer.
func refuses(t testing.TB, why string, call func() error) {
	t.Helper()
	soon(t, "an error that says "+why, func() bool {
		err := call()
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("got %v, want %v that says %q", err, driver.ErrUnavailable, why)
		}
		return contains(err, why)
	})
}

// renew renews g, which must succeed.
func renew(t testing.TB, d driver.Driver, g driver.Grant) {
	t.Helper()
	if err := answered(func() error { return d.Renew(t.Context(), []driver.Grant{g})[0].Err }); err != nil {
		t.Fatalf("renew %q: %v", g.Key, err)
	}
}

// giveBack releases lease. A release that is not answered in time is repeated in the
// background (L5).
func giveBack(t *testing.T, lease interface{ Release() error }) {
	t.Helper()
	start := time.Now()
	err := lease.Release()
	if errors.Is(err, lock.ErrUnavailable) && time.Since(start) >= driver.CallTimeout*9/10 {
		return
	}
	must(t, err)
}

// stateOfKey returns what the server has of key.
func stateOfKey(t *testing.T, l *lock.Locker, key string) (s lock.State) {
	t.Helper()
	must(t, answered(func() (err error) {
		s, err = l.Inspect(t.Context(), key)
		return err
	}))
	return s
}

// take acquires "k", which must succeed.
func (p *client) take(t *testing.T, opts ...lock.Option) (lease *history.Lease) {
	t.Helper()
	must(t, answered(func() (err error) {
		lease, err = p.Acquire(t.Context(), "k", 1, opts...)
		return err
	}))
	return lease
}
