package redis_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// leads reports whether a goroutine that the test has started reads pushes. Its caller
// runs beside no other test: the stacks of a crowd of waiters are longer than 8 MB.
func leads(t *testing.T) bool {
	t.Helper()
	all := make([]byte, 8<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(stack, "wire.(*Feed).Lead(") && strings.Contains(stack, t.Name()+".") {
			return true
		}
	}
	return false
}

// A waiter reads its grant itself, with and without a queue of its process, also on a
// Cluster and of a Sentinel's master: a push wakes no other goroutine.
func TestWaiterReadsItsGrant(t *testing.T) {
	sentinels := redistest.StartSentinels(t, 0, redistest.Options{})
	for topology, url := range map[string]string{
		"single":   redistest.Start(t, redistest.Options{}).URL(),
		"sentinel": sentinels.URL(),
		"cluster":  redistest.StartCluster(t, 3, redistest.Options{}).URL(),
	} {
		near, far := open(t, redis.Config{URL: url}), open(t, redis.Config{URL: url})
		locks, err := lock.New(far, lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]lock.Option{nil, {lock.FIFO()}} {
			held := acquire(t, near, request("k"))
			granted := make(chan error, 1)
			go func() {
				lease, err := locks.Acquire(t.Context(), "k", append(opts, lock.Wait(time.Minute))...)
				if err == nil {
					err = lease.Release()
				}
				granted <- err
			}()
			for end := time.Now().Add(time.Minute); !leads(t); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: the waiter does not read", topology)
				}
			}
			release(t, near, held)
			if err := <-granted; err != nil {
				t.Error(err)
			}
		}
	}
}

// The grant of a waiter that reads may come by a heartbeat, because its push was lost.
func TestWaiterThatReadsTakesTheGrantOfAHeartbeat(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	near, far := open(t, redis.Config{URL: server.URL()}), open(t, redis.Config{URL: server.URL()})
	held := acquire(t, near, request("k"))
	granted := make(chan error, 1)
	go func() {
		g, err := far.Acquire(t.Context(), request("k"))
		if err == nil {
			err = far.Release(t.Context(), g)
		}
		granted <- err
	}()
	for end := time.Now().Add(time.Minute); !leads(t); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the waiter does not read")
		}
	}
	allow := func(right string) {
		if _, err := server.Do("ACL", "SETUSER", "default", right); err != nil {
			t.Fatal(err)
		}
	}
	allow("-publish") // the release hands over, without the push
	release(t, near, held)
	allow("+publish")
	select {
	case err := <-granted:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second): // it has ten, and the next heartbeat comes in less than one
		t.Error("the waiter does not look at what another goroutine has found")
	}
}
