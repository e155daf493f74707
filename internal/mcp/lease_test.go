package mcp

import (
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/lock"
)

// A lease that is renewed at the moment at which its max ends it is either kept for
// another max, or its renewal fails.
func TestRenewalAtTheEndOfMaxIsKeptOrFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := lock.New(memory.NewLock(), lock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close(t.Context()) }()
		s := &server{sdk: sdk.NewServer(&sdk.Implementation{Name: "mega"}, nil), leases: make(map[string]*clientLease)}
		s.group.Init()
		defer s.group.Close(-1)
		defer s.releaseAll()
		free := func() bool {
			synctest.Wait()
			l, err := locks.TryAcquire(t.Context(), "k")
			if err == nil {
				err = l.Release()
			}
			return err == nil
		}
		for range 100 { // timer and renewal are ready in either order
			l, err := locks.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			const longest = 10 * time.Second
			h := &clientLease{handle: "lease-k", lease: l, end: func() {}, order: shell.Order{TTL: time.Minute}, max: longest, due: time.Now().Add(longest)}
			if !s.add(h) {
				t.Fatal("the server keeps no lease")
			}
			time.Sleep(longest)
			_, err = s.renew(t.Context(), handleArgs{h.handle})
			if free := free(); free != (err != nil) {
				t.Fatalf("the renewal returns %v, the key is free: %v", err, free)
			}
			if err != nil {
				continue
			}
			time.Sleep(longest - 1)
			if free() {
				t.Fatal("a renewed lease ends before its max")
			}
			time.Sleep(time.Nanosecond)
			if !free() {
				t.Fatal("a lease lives longer than its max")
			}
		}
	})
}
