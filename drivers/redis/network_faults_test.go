package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/testkit/certificate"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// What a network does to connections below the commands, and what a server does to
// connections that work.

// through returns the URL of s through a pipe.
func through(t *testing.T, s *redistest.Server) (string, *redistest.Pipe) {
	t.Helper()
	p := redistest.StartPipe(t, s.Addr())
	return strings.Replace(s.URL(), s.Addr(), p.Addr(), 1), p
}

// A host that vanishes and comes back leaves its connections half open. Each call
// finds that out by itself: the lease lives on, and the waiter is served.
func TestHalfOpenConnectionsCostNoLease(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second
	s := redistest.Start(t, redistest.Options{})
	url, pipe := through(t, s)
	w := newWitness(t)
	a, b := w.join("a", redis.Config{URL: url}), w.join("b", redis.Config{URL: url})
	held := a.take(t, lock.TTL(ttl))
	got := b.wait(t, lock.TTL(ttl))
	pipe.Freeze()
	during(t, ttl+ttl/4, "the lease ended", func() bool { return held.Context().Err() == nil })
	pipe.Freeze()
	_ = held.Release() // repeated in the background, if need be
	next := leaseOf(t, got, 10*time.Second)
	giveBack(t, next)
	if o := w.verify(0); o != 0 {
		t.Errorf("two holders for %v", o)
	}
	unused(t, member(t, s.URL()), "k")
}

// L16: the server keeps the subscription of a connection that is half open, and
// counts it as a receiver. The holder has no waiters whose heartbeats would miss a push.
func TestHalfOpenSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			url, pipe := through(t, s)
			l, operator := memberOf(t, way(t, url)), member(t, s.URL())
			pipe.Freeze()
			var lease *lock.Lease
			eventually(t, "the lock to be reachable", func() (ok bool) {
				var err error
				lease, err = l.TryAcquire(t.Context(), "k", lock.TTL(30*time.Second))
				return err == nil
			})
			lease.Context() // somebody depends on it
			start := time.Now()
			_, err := operator.ForceRelease(t.Context(), "k", "test")
			must(t, err)
			ends(t, lease, time.Second+slack)
			t.Logf("ended after %v", time.Since(start))
		})
	}
}

// The name of the server leads to a new master, and the old one has become a
// replica that still answers: with its data, or while it waits for those of its master.
func TestNameThatLeadsToANewMasterIsFollowed(t *testing.T) {
	t.Parallel()
	for name, stale := range map[string]string{"READONLY": "yes", "MASTERDOWN": "no"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := redistest.Start(t, redistest.Options{Config: []string{"replica-serve-stale-data " + stale}})
			next := redistest.Start(t, redistest.Options{})
			url, pipe := through(t, old)
			l := member(t, url)
			giveBack(t, take(t, l, "k"))
			if _, err := old.Do("REPLICAOF", "127.0.0.1", "1"); err != nil { // where no server is
				t.Fatal(err)
			}
			refuses(t, name, func() error { _, err := l.TryAcquire(t.Context(), "k"); return err })
			pipe.Lead(next.Addr())
			eventually(t, "the lock to be at the new master", func() bool {
				lease, err := l.TryAcquire(t.Context(), "moved")
				if err != nil {
					return false
				}
				n, err := next.Do("EXISTS", "mega:{moved}")
				must(t, err)
				giveBack(t, lease)
				return n == int64(1)
			})
		})
	}
}

// A server that closes idle connections has closed that of the next call.
func TestFirstCallAfterARestSucceeds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{Config: []string{"timeout 1"}})
	l := member(t, s.URL())
	giveBack(t, take(t, l, "k"))
	eventually(t, "the server to close the connections", func() bool {
		clients, err := s.Clients()
		must(t, err)
		for _, c := range clients {
			if c["sub"] == "0" {
				return false
			}
		}
		return true
	})
	giveBack(t, take(t, l, "k", lock.Wait(0)))
}

// A script of somebody else keeps the server for seconds.
func TestBusyServerIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{Config: []string{"busy-reply-threshold 10"}})
	l := member(t, s.URL())
	held := take(t, l, "held", lock.TTL(30*time.Second))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.Do("EVAL", "while true do end", "0")
	}()
	eventually(t, "the server to be busy", func() bool {
		_, err := s.Do("PING")
		return err != nil && contains(err, "BUSY")
	})
	refuses(t, "BUSY", func() error { _, err := l.TryAcquire(t.Context(), "k"); return err })
	_ = held.Release() // repeated when the server answers again
	_, err := s.Do("SCRIPT", "KILL")
	must(t, err)
	<-ended
	eventually(t, "the lock to be there", func() bool {
		lease, err := l.TryAcquire(t.Context(), "k")
		return err == nil && lease.Release() == nil
	})
	unused(t, member(t, s.URL()), "held")
}

// A server that answers nothing, with time limits longer than a call may take.
func TestErrorOfASilentServerNamesItsAddress(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	url, pipe := through(t, s)
	l := member(t, url+"?read_timeout=1m&dial_timeout=1m")
	pipe.Stall(redistest.Replies)
	says := "acquire: no success within 1s: no answer from " + pipe.Addr()
	if _, err := l.TryAcquire(t.Context(), "k"); !errors.Is(err, lock.ErrUnavailable) || !contains(err, says) {
		t.Errorf("acquire = %v, want %q", err, says)
	}
}

// The boot error of a server with TLS names the cause.
func TestTLSErrorsNameTheirCause(t *testing.T) {
	t.Parallel()
	at := func(c certificate.Certificate) string {
		_, addr, _ := redistest.StartTLS(t, c)
		return addr
	}
	good := at(certificate.Certificate{})
	_, mutual, _ := redistest.StartTLS(t, certificate.Certificate{}, "tls-auth-clients yes")
	plain := redistest.Start(t, redistest.Options{})
	tests := []struct {
		name, url string
		says      []string
	}{
		{"unknown authority", "rediss://" + good, []string{"unknown authority", "certificate"}},
		{"expired", "rediss://" + at(certificate.Certificate{Expired: true}), []string{"expired"}},
		{"another name", "rediss://" + at(certificate.Certificate{Host: "elsewhere.example"}), []string{"127.0.0.1"}},
		{"no certificate at the client", "rediss://" + mutual + "?skip_verify=true", []string{"certificate required", "tls-auth-clients"}},
		{"no TLS at the server", "rediss://" + plain.Addr(), []string{"use the scheme redis://"}},
		{"no TLS at the client", "redis://" + good, []string{"use the scheme rediss://"}},
		{"no TLS at the servers", "rediss-cluster://" + plain.Addr(), []string{"use the scheme redis-cluster://"}},
		{"no TLS at the client of a Cluster", "redis-cluster://" + good, []string{"use the scheme rediss-cluster://"}},
	}
	sentinels := redistest.StartSentinels(t, 0, redistest.Options{}).Addrs()
	for _, x := range []struct{ name, url, says string }{
		{"no TLS at the sentinels", "rediss-sentinel://" + strings.Join(sentinels, ",") + "/mega", "use the scheme redis-sentinel://"},
		{"no TLS at the client of sentinels", "redis-sentinel://" + good + "/mega", "use the scheme rediss-sentinel://"},
	} {
		tests = append(tests, struct {
			name, url string
			says      []string
		}{x.name, x.url, []string{x.says}})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			l, err := openMember(t.Context(), redis.Config{URL: test.url})
			// A busy machine may not end a handshake in time.
			for n := 1; n < 3 && err != nil && contains(err, context.DeadlineExceeded.Error()); n++ {
				start = time.Now()
				l, err = openMember(t.Context(), redis.Config{URL: test.url})
			}
			if err == nil {
				dismiss(t, l)
				t.Fatal("no error")
			}
			want := lock.ErrUnavailable
			if strings.HasPrefix(test.name, "no TLS") {
				want = lock.ErrInvalid // the URL does not fit the server
			}
			if !errors.Is(err, want) {
				t.Errorf("OpenLock = %v, want %v", err, want)
			}
			for _, says := range append(test.says, strings.TrimSuffix(test.url, "true")) {
				if !contains(err, says) {
					t.Errorf("%q does not say %q", err, says)
				}
			}
			if took := time.Since(start); timed && took > 5*time.Second {
				t.Errorf("OpenLock took %v", took)
			}
		})
	}
	l := member(t, "rediss://"+good+"?skip_verify=true")
	must(t, l.With(t.Context(), "k", func(context.Context) error { return nil }))
}

// Without pushes other processes would overtake the waiters of this one (L7, L21).
func TestASubscriptionThatIsRefusedFailsCallsUntilItIsAllowed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, reason string
		spoil, mend  []any
	}{
		{"a lost permission", "NOPERM", []any{"ACL", "SETUSER", "default", "-subscribe"}, []any{"ACL", "SETUSER", "default", "+subscribe"}},
		{"too many clients", "", []any{"CONFIG", "SET", "maxclients", "1"}, []any{"CONFIG", "SET", "maxclients", "100"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.Options{})
			admin := goredis.NewClient(&goredis.Options{Addr: s.Addr(), PoolSize: 1})
			defer func() { _ = admin.Close() }()
			d := open(t, redis.Config{URL: s.URL()})
			held := acquire(t, d, request("held"))
			must(t, admin.Do(t.Context(), test.spoil...).Err())
			must(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
			again := func() error {
				g, err := d.Acquire(t.Context(), request("k"))
				if err == nil {
					release(t, d, g)
				}
				return err
			}
			soon(t, "the refusal", func() bool {
				err := again()
				if err != nil && (!errors.Is(err, driver.ErrUnavailable) || !contains(err, "subscribe: ") || !contains(err, test.reason)) {
					t.Fatalf("got %v, want %v with the refusal", err, driver.ErrUnavailable)
				}
				return err != nil
			})
			if r := d.Renew(t.Context(), []driver.Grant{held}); r[0].Err != nil {
				t.Error(r[0].Err)
			}
			must(t, admin.Do(t.Context(), test.mend...).Err())
			soon(t, "calls to succeed", func() bool { return again() == nil })
			if _, err := d.ForceRelease(t.Context(), "held", driver.Force{Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			for end := time.After(generous(slack)); ; { // the hint of the reconnection comes first
				select {
				case err := <-held.Lost:
					if errors.Is(err, driver.ErrLost) {
						return
					}
				case <-end:
					t.Fatal("no push of the force")
				}
			}
		})
	}
}
