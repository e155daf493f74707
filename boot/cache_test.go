package boot_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// keeper is a value that needs a cache to its end.
type keeper struct {
	redis goredis.UniversalClient
	d     *diary
}

func (k *keeper) Close(ctx context.Context) error {
	err := k.redis.Set(ctx, "last", "words", 0).Err()
	k.d.add("kept")
	return err
}

func TestCacheIsProvidedAndClosedLast(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	d := &diary{}
	p, _ := process("MEGA_CACHE_MAIN_URL=" + server.URL())
	var client goredis.UniversalClient
	r := start(t, p, mega.App("main",
		mega.Provide(func(r goredis.UniversalClient) *keeper { client = r; return &keeper{r, d} }),
		mega.Routes(func(r megactx.Router, k *keeper) {
			r.Get("/", func(c *megactx.Ctx) error {
				return c.Lock.With("x", func(c *megactx.Ctx) error {
					n, err := k.redis.Incr(c, "n").Result()
					return errors.Join(err, c.JSON(200, n))
				})
			})
		})))
	if _, body := get(t, r.Report().Apps[0].URL); body != "1" {
		t.Errorf("got %s", body)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if got, err := server.Do("GET", "last"); err != nil || got != "words" {
		t.Errorf("what was closed before it could not use it: %v, %v", got, err)
	}
	if err := client.Ping(t.Context()).Err(); !errors.Is(err, goredis.ErrClosed) {
		t.Errorf("it is open: %v", err)
	}
}

// asks is an app that takes the cache.
func asks(use func(goredis.UniversalClient)) mega.Option {
	return mega.App("main", mega.OnStart("use", func(c goredis.UniversalClient, _ context.Context) { use(c) }))
}

func TestWhichCacheIsMeant(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	at := func(alias, db string) string { return "MEGA_CACHE_" + alias + "_URL=" + server.URL() + "/" + db }
	for name, x := range map[string]struct {
		environ []string
		db      int
	}{
		"the only one":          {[]string{at("SESSIONS", "3")}, 3},
		"main":                  {[]string{at("SESSIONS", "3"), at("MAIN", "4"), "MEGA_LOCK_CACHE=sessions"}, 4},
		"the one for the locks": {[]string{at("SESSIONS", "3"), at("PAGES", "4"), "MEGA_LOCK_CACHE=pages"}, 4},
	} {
		p, _ := process(x.environ...)
		db := -1
		start(t, p, asks(func(c goredis.UniversalClient) { db = c.(*goredis.Client).Options().DB }))
		if db != x.db {
			t.Errorf("%s: got database %d, want %d", name, db, x.db)
		}
	}
}

func TestAllCachesCanBeTaken(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	p, _ := process("MEGA_CACHE_PAGES_URL="+server.URL(), "MEGA_CACHE_SESSIONS_URL="+server.URL(), "MEGA_LOCK_DRIVER=memory")
	var aliases []string
	start(t, p, mega.App("main", mega.OnStart("use", func(c mega.Caches, ctx context.Context) error {
		aliases = slices.Sorted(maps.Keys(c))
		return c["pages"].Ping(ctx).Err()
	})))
	if !slices.Equal(aliases, []string{"pages", "sessions"}) {
		t.Errorf("got %q", aliases)
	}
}

func TestCacheThatCannotBeHadStopsTheBoot(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	url := server.URL()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		environ []string
		code    string
		exit    int
		says    []string
	}{
		{nil, "cache.not_configured", 78, []string{"cache_test.go:", "MEGA_CACHE_MAIN_URL"}},
		{[]string{"MEGA_CACHE_A_URL=" + url, "MEGA_CACHE_B_URL=" + url, "MEGA_LOCK_DRIVER=memory"}, "cache.ambiguous", 78, []string{"a, b", "cache_test.go:", "mega.Caches"}},
		{[]string{"MEGA_CACHE_A_URL=" + url, "MEGA_LOCK_DRIVER=memory", "MEGA_BOOT_WAIT_FOR=0s"}, "cache.unavailable", 69, []string{"MEGA_CACHE_A_URL", "connection refused"}},
		{[]string{"MEGA_CACHE_A_URL=redis://localhost/notanumber", "MEGA_LOCK_DRIVER=memory"}, "cache.refused", 78, []string{"MEGA_CACHE_A_URL", "notanumber"}},
	} {
		p, stderr := process(x.environ...)
		status := boot.Main(t.Context(), p, asks(func(goredis.UniversalClient) {}))
		if status != x.exit || !strings.Contains(stderr.String(), "("+x.code+")") {
			t.Errorf("exit status %d, want %d and %s:\n%s", status, x.exit, x.code, stderr)
		}
		for _, want := range x.says {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: %q is not told:\n%s", x.code, want, stderr)
			}
		}
	}
}

// Nobody connects to what nobody asks for.
func TestCacheThatNobodyAsksForMayBeDown(t *testing.T) {
	p, _ := process("MEGA_CACHE_A_URL=redis://127.0.0.1:1", "MEGA_LOCK_DRIVER=memory")
	start(t, p, mega.App("main", mega.Routes(hello)))
}

func TestProgramMayHaveAClientOfItsOwn(t *testing.T) {
	addr := ""
	own := mega.Provide(func() goredis.UniversalClient { return goredis.NewClient(&goredis.Options{Addr: "own:1"}) })
	use := asks(func(c goredis.UniversalClient) { addr = c.(*goredis.Client).Options().Addr })
	for name, options := range map[string][]mega.Option{
		"shared":    {own, use},
		"of an app": {mega.App("main", own, mega.OnStart("use", func(c goredis.UniversalClient, _ context.Context) { addr = c.(*goredis.Client).Options().Addr }))},
	} {
		addr = ""
		p, _ := process()
		start(t, p, options...)
		if addr != "own:1" {
			t.Errorf("%s: got %q", name, addr)
		}
	}
}
