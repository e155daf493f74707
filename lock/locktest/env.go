package locktest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// env is the environment of a case. It opens processes.
type env struct {
	*suite.Env
	h      Harness
	info   driver.Info
	prefix string // of the case's keys, so that cases on one backend do not share keys

	looker *process // see outsider
}

// key returns a key that no other case uses.
func (e *env) key(name string) string { return e.prefix + ":" + name }

// token returns a token in the format of the front.
func token() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// request returns a request of a plain lease of two units.
func (e *env) request(key string) driver.Request {
	return driver.Request{
		Key: key, Token: token(), TTL: e.Units(2), Slots: 1, Fences: 1,
		Holder: driver.Holder{Host: "host", PID: os.Getpid(), Since: time.Now()},
	}
}

// driver opens another process, without a front.
func (e *env) driver() driver.Driver {
	d, err := e.h.Open()
	e.Must(err, "open the driver")
	e.AtEnd(func() { _ = closeBounded(d) })
	return d
}

func closeBounded(d driver.Driver) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return d.Close(ctx)
}

// sizes returns the sizes of a plain lock and, if the driver has pools, of a pool.
func (e *env) sizes() []int {
	if e.keeps("L15") {
		return []int{1, 2}
	}
	return []int{1}
}

// lastOf returns a request, with a TTL that is longer than any case, for the last
// free slot of a new key of that size.
func (e *env) lastOf(d driver.Driver, size int) driver.Request {
	r := e.longRequest(e.key(fmt.Sprint("of-", size)))
	r.Slots = size
	for range size - 1 {
		held := r
		held.Token = token()
		e.grant(d, held)
	}
	return r
}

// grant acquires a key from the driver without a wait.
func (e *env) grant(d driver.Driver, r driver.Request) driver.Grant {
	ctx, cancel := e.Bounded()
	defer cancel()
	g, err := d.Acquire(ctx, r)
	e.Must(err, "the driver's Acquire of %q", r.Key)
	return g
}

// renew renews one grant.
func (e *env) renew(d driver.Driver, g driver.Grant) driver.Renewal {
	ctx, cancel := e.Bounded()
	defer cancel()
	return d.Renew(ctx, []driver.Grant{g})[0]
}

// release releases a grant.
func (e *env) release(d driver.Driver, g driver.Grant) error {
	ctx, cancel := e.Bounded()
	defer cancel()
	return d.Release(ctx, g)
}

// inspect returns the driver's state of key.
func (e *env) inspect(d driver.Driver, key string) driver.State {
	ctx, cancel := e.Bounded()
	defer cancel()
	s, err := d.Inspect(ctx, key)
	e.Must(err, "the driver's Inspect of %q", key)
	return s
}

// slack returns what a busy machine may add to the duration of something that
// costs a few calls. Fake time has no busy machine.
func (e *env) slack() time.Duration {
	if e.h.FakeTime {
		return 0
	}
	return time.Second
}

// keeps reports whether the driver keeps the rule.
func (e *env) keeps(rule string) bool { return !lacks(e.info, rule) }

// remote reports whether there may be other processes, and so a local queue.
func (e *env) remote() bool { return e.info.Scope > driver.Process }

// ttl returns the TTL option of n units.
func (e *env) ttl(n float64) lock.Option { return lock.TTL(e.Units(n)) }

// long returns a Wait option without limit.
func (e *env) long() lock.Option { return lock.Wait(lock.Forever) }
