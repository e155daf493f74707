package redisguard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/memory"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard/redisguard"
)

const set = "redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1] .. #KEYS .. #ARGV"

func acquire(t *testing.T, ctx context.Context, key string) *lock.Lease {
	t.Helper()
	// A Locker of its own stands for a process that does not know of the others.
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	lease, err := l.Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release() })
	return lease
}

// servers returns a client of a single server and one of a Redis Cluster.
func servers(t *testing.T) map[string]goredis.UniversalClient {
	t.Helper()
	o, err := goredis.ParseURL(redistest.Start(t, redistest.Options{}).URL())
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]goredis.UniversalClient{
		"single":  goredis.NewClient(o),
		"cluster": goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: redistest.StartCluster(t, 3, redistest.Options{}).Addrs()}),
	}
	for _, c := range clients {
		t.Cleanup(func() { _ = c.Close() })
	}
	return clients
}

func TestAScriptOfAnEarlierHolderWritesNothing(t *testing.T) {
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			early := acquire(t, ctx, "cart:7")
			late := acquire(t, ctx, "cart:7")
			got, err := redisguard.Redis(late.Context(), client, set, []string{"cart:7"}, "late")
			if err != nil || got != "late11" {
				t.Fatalf("the later holder: %v, %v; the script sees its own key and argument only", got, err)
			}
			_, err = redisguard.Redis(early.Context(), client, set, []string{"cart:7"}, "early")
			if stale, ok := errors.AsType[*lock.StaleError](err); !ok || stale.Key != "cart:7" || stale.Fence != early.Fence() {
				t.Errorf("the earlier holder: %v", err)
			}
			if got, err := client.Get(ctx, "cart:7").Result(); got != "late" || err != nil {
				t.Errorf("the value is %q, %v", got, err)
			}
			if _, err := redisguard.Redis(late.Context(), client, set, []string{"cart:7"}, "again"); err != nil {
				t.Errorf("the later holder again: %v", err)
			}
		})
	}
}

func TestFencesJoinTheHashSlotOfTheFirstKey(t *testing.T) {
	client := servers(t)["cluster"]
	lease := acquire(t, t.Context(), "cart:8")
	for _, key := range []string{"plain", "a{b", "{a}b", "x{y}z}", "{{a}b"} {
		if _, err := redisguard.Redis(lease.Context(), client, set, []string{key}, "x"); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestAScriptOverSeveralHashSlotsIsRefusedWithWhatToDo(t *testing.T) {
	client := servers(t)["cluster"]
	one := acquire(t, t.Context(), "cart:10")
	two := acquire(t, one.Context(), "stock:10")
	for name, run := range map[string]func() (any, error){
		"keys":   func() (any, error) { return redisguard.Redis(one.Context(), client, set, []string{"a", "b"}, "x") },
		"fences": func() (any, error) { return redisguard.Redis(two.Context(), client, "return 1", nil) },
	} {
		_, err := run()
		if err == nil || !strings.HasPrefix(err.Error(), "redisguard: ") || !strings.Contains(err.Error(), "CROSSSLOT") || !strings.Contains(err.Error(), "hash tag") {
			t.Errorf("%s: %v, want the server's error with what to do", name, err)
		}
	}
	if _, err := redisguard.Redis(two.Context(), client, set, []string{"{10}a", "{10}b"}, "x"); err != nil {
		t.Errorf("with one hash tag: %v", err)
	}
}

func TestAllLeasesOfTheContextAreCheckedBeforeOneIsRecorded(t *testing.T) {
	client, ctx := servers(t)["single"], t.Context()
	staleB := acquire(t, ctx, "b")
	if _, err := redisguard.Redis(acquire(t, ctx, "b").Context(), client, "return 1", nil); err != nil {
		t.Fatal(err)
	}
	newA := acquire(t, staleB.Context(), "a")
	if _, err := redisguard.Redis(newA.Context(), client, set, []string{"x"}, "1"); !errors.Is(err, lock.ErrStale) {
		t.Fatalf("got %v, want ErrStale of b", err)
	}
	if n, err := client.Exists(ctx, "mega:fence:a", "x").Result(); n != 0 || err != nil {
		t.Errorf("%d keys were written, %v", n, err)
	}
}

func TestNothingIsSentWithoutALeaseOrWithAWrongScriptOrKey(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"}) // no server: any I/O is another error
	defer func() { _ = client.Close() }()
	if _, err := redisguard.Redis(t.Context(), client, set, []string{"k"}, 1); !errors.Is(err, lock.ErrNoLease) {
		t.Errorf("no lease: %v", err)
	}
	lease := acquire(t, t.Context(), "k")
	if _, err := redisguard.Redis(lease.Context(), client, "#!lua flags=no-writes\nreturn 1", nil); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a script with flags: %v", err)
	}
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = cluster.Close() }()
	for _, key := range []string{"a}b", "{}x", "}"} {
		if _, err := redisguard.Redis(lease.Context(), cluster, set, []string{key}, 1); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("a key without a hash tag that its fence could have: %v", err)
		}
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := redisguard.Redis(context.WithoutCancel(lease.Context()), client, set, []string{"k"}, 1); !errors.Is(err, lock.ErrLost) {
		t.Errorf("a released lease: %v", err)
	}
}

// go-redis repeats a command without an answer unless MaxRetries is -1. G3: ErrStale
// means that nothing is written.
func TestAScriptWithoutAnAnswerRunsOnceAndIsNotStaleIfTheClientDoesNotRetry(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	p := redistest.StartProxy(t, server, nil)
	direct, client := goredis.NewClient(&goredis.Options{Addr: server.Addr()}), goredis.NewClient(&goredis.Options{Addr: p.Addr(), MaxRetries: -1})
	for _, c := range []*goredis.Client{direct, client} {
		t.Cleanup(func() { _ = c.Close() })
	}
	const push = "return redis.call('RPUSH', KEYS[1], ARGV[1])"
	early, late := acquire(t, t.Context(), "cart:9"), acquire(t, t.Context(), "cart:9")
	if _, err := redisguard.Redis(early.Context(), direct, push, []string{"cart:9"}, "loaded"); err != nil {
		t.Fatal(err)
	}
	p.ResetAfter(redistest.Named("EVALSHA"))
	_, err := redisguard.Redis(early.Context(), client, push, []string{"cart:9"}, "early")
	if err == nil || errors.Is(err, lock.ErrStale) || errors.Is(err, lock.ErrLost) {
		t.Errorf("the script without an answer: %v, want the error of the connection", err)
	}
	if _, err := redisguard.Redis(late.Context(), direct, push, []string{"cart:9"}, "late"); err != nil {
		t.Fatal(err)
	}
	if got, err := direct.LRange(t.Context(), "cart:9", 0, -1).Result(); err != nil || !slices.Equal(got, []string{"loaded", "early", "late"}) {
		t.Errorf("the list has %q, %v", got, err)
	}
}

func TestARingIsRefused(t *testing.T) {
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}) // no server
	defer func() { _ = ring.Close() }()
	lease := acquire(t, t.Context(), "k")
	_, script := redisguard.Redis(lease.Context(), ring, set, []string{"k"}, 1)
	fences := redisguard.Fences{Client: ring}
	_, store := fences.Advance(t.Context(), "k", 1)
	for name, err := range map[string]error{"Redis": script, "Advance": store, "Reset": fences.Reset(t.Context(), "k")} {
		if !errors.Is(err, lock.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
}

func TestAResultlessAndAFailingScriptAnswerAsInRedis(t *testing.T) {
	client := servers(t)["single"]
	lease := acquire(t, t.Context(), "k")
	if _, err := redisguard.Redis(lease.Context(), client, "return false", nil); !errors.Is(err, goredis.Nil) {
		t.Errorf("no result: %v", err)
	}
	if _, err := redisguard.Redis(lease.Context(), client, "return redis.error_reply('OWN no')", nil); err == nil || !strings.Contains(err.Error(), "OWN no") {
		t.Errorf("the script's own error: %v", err)
	}
	if _, err := redisguard.Redis(lease.Context(), client, "return redis.error_reply('STALEFENCE -1')", nil); err == nil || errors.Is(err, lock.ErrStale) {
		t.Errorf("an error of the script that looks like the guard's: %v", err)
	}
}

func TestTheStoreSharesItsFencesAndForgetsThemOnReset(t *testing.T) {
	client, ctx := servers(t)["single"], t.Context()
	store := redisguard.Fences{Client: client}
	lease := acquire(t, ctx, "a/b")
	if _, err := redisguard.Redis(lease.Context(), client, "return 1", nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		fence uint64
		want  bool
	}{{lease.Fence() - 1, false}, {lease.Fence(), true}, {lease.Fence() + 1, true}, {lease.Fence(), false}} {
		if got, err := store.Advance(ctx, "a%2Fb", step.fence); err != nil || got != step.want {
			t.Errorf("fence %d: %v, %v, want %v", step.fence, got, err, step.want)
		}
	}
	if err := store.Reset(ctx, "a/b"); err != nil {
		t.Fatal(err)
	}
	if ok, err := store.Advance(ctx, "new", 1<<53); ok || !errors.Is(err, lock.ErrInvalid) { // a script counts in floating point
		t.Errorf("a fence of 2^53: %v, %v, want ErrInvalid", ok, err)
	}
	if ok, err := store.Advance(ctx, "a%2Fb", 1); !ok || err != nil {
		t.Errorf("after a reset: %v, %v", ok, err)
	}
}
