package selection_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/selection"
	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock/driver"
)

func load(t *testing.T, environ ...string) *settings.Config {
	t.Helper()
	c, err := settings.Load(settings.Source{Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	cacheA = "MEGA_CACHE_MAIN_URL=redis://user:hidden@a"
	cacheB = "MEGA_CACHE_OTHER_URL=redis://b"
	nats   = "MEGA_NATS_URL=nats://user:hidden@n"
	socket = "MEGA_CLUSTER_SOCKET=auto"
)

func TestDriverOfLocksIsChosenByTheConfiguration(t *testing.T) {
	for _, x := range []choice{
		{"nothing is configured", nil, "memory", "", "cache.<alias>.url", "not set"},
		{"a cache is configured", []string{cacheA}, "redis", "main", "cache.main.url", "env MEGA_CACHE_MAIN_URL"},
		{"a cache and a socket are configured", []string{cacheA, socket}, "redis", "main", "cache.main.url", "env MEGA_CACHE_MAIN_URL"},
		{"two caches, and one is meant", []string{cacheA, cacheB, "MEGA_LOCK_CACHE=other"}, "redis", "other", "cache.other.url", "env MEGA_CACHE_OTHER_URL"},
		{"a socket is configured", []string{socket}, "cluster", "", "cluster.socket", "env MEGA_CLUSTER_SOCKET"},
		{"several workers are configured", []string{"MEGA_CLUSTER_WORKERS=4"}, "cluster", "", "cluster.workers", "env MEGA_CLUSTER_WORKERS"},
		{"a message server is configured", []string{nats}, "memory", "", "cache.<alias>.url", "not set"},
		{"redis is asked for", []string{cacheA, "MEGA_LOCK_DRIVER=redis"}, "redis", "main", "lock.driver", "env MEGA_LOCK_DRIVER"},
		{"memory is asked for beside a cache", []string{cacheA, "MEGA_LOCK_DRIVER=memory"}, "memory", "", "lock.driver", "env MEGA_LOCK_DRIVER"},
		{"memory is asked for beside two caches", []string{cacheA, cacheB, "MEGA_LOCK_DRIVER=memory"}, "memory", "", "lock.driver", "env MEGA_LOCK_DRIVER"},
		{"cluster is asked for beside a cache", []string{cacheA, socket, "MEGA_LOCK_DRIVER=cluster"}, "cluster", "", "lock.driver", "env MEGA_LOCK_DRIVER"},
		{"auto is asked for", []string{"MEGA_LOCK_DRIVER=auto"}, "memory", "", "cache.<alias>.url", "not set"},
		{"the process is required of memory", []string{"MEGA_LOCK_REQUIRE=process"}, "memory", "", "cache.<alias>.url", "not set"},
		{"the node is required of a cluster", []string{socket, "MEGA_LOCK_REQUIRE=node"}, "cluster", "", "cluster.socket", "env MEGA_CLUSTER_SOCKET"},
		{"the fleet is required of redis", []string{cacheA, "MEGA_LOCK_REQUIRE=fleet"}, "redis", "main", "cache.main.url", "env MEGA_CACHE_MAIN_URL"},
	} {
		t.Run(x.name, func(t *testing.T) {
			d, err := selection.Lock(load(t, x.environ...), selection.Surroundings{})
			x.is(t, d, err)
			explained(t, d, "redis", "cluster", "memory")
		})
	}
}

func TestDriverOfLimitsIsTheDriverOfLocksUnlessItIsConfigured(t *testing.T) {
	for _, x := range []choice{
		{"nothing is configured", nil, "memory", "", "cache.<alias>.url", "not set"},
		{"a cache is configured", []string{cacheA}, "redis", "main", "cache.main.url", "env MEGA_CACHE_MAIN_URL"},
		{"two caches, and one is meant for locks", []string{cacheA, cacheB, "MEGA_LOCK_CACHE=other"}, "redis", "other", "cache.other.url", "env MEGA_CACHE_OTHER_URL"},
		{"a socket is configured", []string{socket}, "cluster", "", "cluster.socket", "env MEGA_CLUSTER_SOCKET"},
		{"memory is asked for locks beside a cache", []string{cacheA, "MEGA_LOCK_DRIVER=memory"}, "memory", "", "lock.driver", "env MEGA_LOCK_DRIVER"},
		{"redis is asked for", []string{cacheA, "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis"}, "redis", "main", "limit.driver", "env MEGA_LIMIT_DRIVER"},
		{"redis is asked for, in another cache than the locks", []string{cacheA, cacheB, "MEGA_LOCK_CACHE=main", "MEGA_LIMIT_DRIVER=redis", "MEGA_LIMIT_CACHE=other"}, "redis", "other", "limit.driver", "env MEGA_LIMIT_DRIVER"},
		{"a cache is meant for limits", []string{cacheA, cacheB, "MEGA_LOCK_CACHE=main", "MEGA_LIMIT_CACHE=other"}, "redis", "other", "cache.other.url", "env MEGA_CACHE_OTHER_URL"},
		{"a cache is meant for limits, beside locks in memory", []string{cacheA, "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_CACHE=main"}, "redis", "main", "cache.main.url", "env MEGA_CACHE_MAIN_URL"},
		{"the cache of the locks is meant for limits", []string{cacheA, cacheB, "MEGA_LOCK_CACHE=other", "MEGA_LIMIT_CACHE=other"}, "redis", "other", "cache.other.url", "env MEGA_CACHE_OTHER_URL"},
		{"memory is asked for beside a cache", []string{cacheA, "MEGA_LIMIT_DRIVER=memory"}, "memory", "", "limit.driver", "env MEGA_LIMIT_DRIVER"},
		{"cluster is asked for beside a cache", []string{cacheA, socket, "MEGA_LIMIT_DRIVER=cluster"}, "cluster", "", "limit.driver", "env MEGA_LIMIT_DRIVER"},
	} {
		t.Run(x.name, func(t *testing.T) {
			d, err := selection.Decide(load(t, x.environ...), selection.Surroundings{})
			x.is(t, d.Limit, err)
			if d.Limit.Follows() {
				if len(d.Limit.Warnings)+len(d.Limit.Wider) > 0 {
					t.Errorf("what the locks warn of is repeated: %+v", d.Limit)
				}
				d.Limit.Warnings = d.Lock.Warnings
			}
			explained(t, d.Limit, "redis", "cluster", "memory")
		})
	}
}

func TestLimitsThatCannotBeAreRefused(t *testing.T) {
	for _, x := range []struct {
		environ    []string
		code, says string
	}{
		{[]string{"MEGA_LIMIT_DRIVER=redis"}, "limit.no_cache", "MEGA_CACHE_MAIN_URL=redis://"},
		{[]string{"MEGA_LIMIT_DRIVER=cluster"}, "limit.no_cluster", "MEGA_CLUSTER_SOCKET=auto"},
		{[]string{cacheA, cacheB, "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_DRIVER=redis"}, "limit.ambiguous_cache", "MEGA_LIMIT_CACHE=other"},
		{[]string{"MEGA_LIMIT_REQUIRE=fleet"}, "limit.scope_too_small", "MEGA_CACHE_MAIN_URL=redis://"},
		{[]string{cacheA, "MEGA_LOCK_DRIVER=memory", "MEGA_LIMIT_REQUIRE=fleet"}, "limit.scope_too_small", "MEGA_LIMIT_DRIVER=redis"},
		{[]string{cacheA, "MEGA_LIMIT_DRIVER=memory", "MEGA_LIMIT_REQUIRE=fleet"}, "limit.scope_too_small", "unset MEGA_LIMIT_DRIVER"},
	} {
		d, err := selection.Decide(load(t, x.environ...), selection.Surroundings{})
		f, ok := errors.AsType[*failure.Failure](err)
		if !ok || f.Code != x.code || !strings.Contains(strings.Join(f.Actions, "\n"), x.says) {
			t.Errorf("%q: got %v, want %s with %q", x.environ, err, x.code, x.says)
		}
		if len(d.Limit.Candidates) != 3 {
			t.Errorf("%q: the decision is not complete: %+v", x.environ, d.Limit)
		}
	}
}

func TestDriverOfTheBusIsChosenByTheConfiguration(t *testing.T) {
	for _, x := range []choice{
		{"nothing is configured", nil, "memory", "", "nats.url", "not set"},
		{"a server is configured", []string{nats}, "nats", "", "nats.url", "env MEGA_NATS_URL"},
		{"a server and a socket are configured", []string{nats, socket}, "nats", "", "nats.url", "env MEGA_NATS_URL"},
		{"a socket is configured", []string{socket}, "cluster", "", "cluster.socket", "env MEGA_CLUSTER_SOCKET"},
		{"a cache is configured", []string{cacheA}, "memory", "", "nats.url", "not set"},
		{"nats is asked for", []string{nats, "MEGA_BUS_DRIVER=nats"}, "nats", "", "bus.driver", "env MEGA_BUS_DRIVER"},
		{"memory is asked for beside a server", []string{nats, "MEGA_BUS_DRIVER=memory"}, "memory", "", "bus.driver", "env MEGA_BUS_DRIVER"},
	} {
		t.Run(x.name, func(t *testing.T) {
			d, err := selection.Bus(load(t, x.environ...), selection.Surroundings{})
			x.is(t, d, err)
			explained(t, d, "nats", "cluster", "memory")
		})
	}
}

// choice is what has to be chosen, and why.
type choice struct {
	name    string
	environ []string
	chosen  string
	cache   string
	key     string // that decided
	origin  string
}

func (x choice) is(t *testing.T, d plan.Decision, err error) {
	t.Helper()
	if err != nil || d.Chosen != x.chosen || d.Cache != x.cache || d.Key != x.key || d.Origin != x.origin {
		t.Errorf("got %+v, %v, want %s %s by %s (%s)", d, err, x.chosen, x.cache, x.key, x.origin)
	}
	if strings.Contains(d.Server, "hidden") {
		t.Errorf("the password is told: %s", d.Server)
	}
}

// explained checks that a decision accounts for every driver, that what was not
// chosen says what it would take, and that a scope that ends is warned of.
func explained(t *testing.T, d plan.Decision, drivers ...string) {
	t.Helper()
	var names []string
	chosen := 0
	for _, c := range d.Candidates {
		names = append(names, c.Name)
		if c.Reason == "" || c.Origin == "" {
			t.Errorf("%s has no reason: %+v", c.Name, c)
		}
		if (c.Outcome == plan.Chosen) != (c.Needs == "") {
			t.Errorf("%s is %s and needs %q", c.Name, c.Outcome, c.Needs)
		}
		if c.Outcome == plan.Chosen {
			chosen++
			if c.Name != d.Chosen || c.Key != d.Key || c.Origin != d.Origin || c.Scope != d.Scope {
				t.Errorf("the chosen candidate is %+v in %+v", c, d)
			}
		}
	}
	if !slices.Equal(names, drivers) || chosen != 1 {
		t.Errorf("the candidates are %v, %d of them chosen", names, chosen)
	}
	if warned := len(d.Warnings) > 0; warned != (d.Scope != "fleet") {
		t.Errorf("%s has the warnings %q", d.Chosen, d.Warnings)
	}
}

func TestCandidatesSayWhatTheyWouldTake(t *testing.T) {
	for _, x := range []struct {
		environ   []string
		candidate string
		outcome   plan.Outcome
		needs     string
		key       string
	}{
		{nil, "redis", plan.Rejected, "cache.<alias>.url", "cache.<alias>.url"},
		{nil, "cluster", plan.Rejected, "cluster.socket", "cluster.socket"},
		{[]string{cacheA}, "cluster", plan.Rejected, "cluster.socket", "cluster.socket"},
		{[]string{cacheA}, "memory", plan.Outdone, "lock.driver: memory", "cache.main.url"},
		{[]string{cacheA, socket}, "cluster", plan.Outdone, "lock.driver: cluster", "cache.main.url"},
		{[]string{cacheA, "MEGA_LOCK_DRIVER=memory"}, "redis", plan.Rejected, "lock.driver: redis", "lock.driver"},
		{[]string{"MEGA_LOCK_DRIVER=memory"}, "redis", plan.Rejected, "lock.driver: redis and cache.<alias>.url", "lock.driver"},
	} {
		d, err := selection.Lock(load(t, x.environ...), selection.Surroundings{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(d.Candidates, func(c plan.Candidate) bool { return c.Name == x.candidate })
		if c := d.Candidates[i]; c.Outcome != x.outcome || c.Needs != x.needs || c.Key != x.key {
			t.Errorf("%q: got %+v, want it %s, in need of %s, because of %s", x.environ, c, x.outcome, x.needs, x.key)
		}
	}
}

// Whether a server answers is not among what a decision can see: the address
// is all that differs.
func TestServerThatCannotBeReachedDoesNotChangeTheDecision(t *testing.T) {
	a, err := selection.Lock(load(t, "MEGA_CACHE_MAIN_URL=redis://localhost"), selection.Surroundings{})
	b, err2 := selection.Lock(load(t, "MEGA_CACHE_MAIN_URL=redis://nowhere.invalid:1"), selection.Surroundings{})
	a.Server, b.Server = "", ""
	if err != nil || err2 != nil || a.Chosen != b.Chosen || a.Why != b.Why || a.Origin != b.Origin {
		t.Errorf("got %+v, %v and %+v, %v", a, err, b, err2)
	}
}

func TestConfigurationsThatCannotBeAreRefused(t *testing.T) {
	for _, x := range []struct {
		name    string
		environ []string
		code    string
		says    string // of what to do
	}{
		{"two caches, and nobody says which", []string{cacheA, cacheB}, "lock.ambiguous_cache", "MEGA_LOCK_CACHE=other"},
		{"redis is asked for with two caches", []string{cacheA, cacheB, "MEGA_LOCK_DRIVER=redis"}, "lock.ambiguous_cache", "MEGA_LOCK_CACHE=main"},
		{"redis is asked for without a cache", []string{"MEGA_LOCK_DRIVER=redis"}, "lock.no_cache", "MEGA_CACHE_MAIN_URL=redis://"},
		{"redis is asked for beside a socket", []string{"MEGA_LOCK_DRIVER=redis", socket}, "lock.no_cache", "unset MEGA_LOCK_DRIVER"},
		{"cluster is asked for outside one", []string{cacheA, "MEGA_LOCK_DRIVER=cluster"}, "lock.no_cluster", "MEGA_CLUSTER_SOCKET=auto"},
		{"the fleet is required of memory", []string{"MEGA_LOCK_REQUIRE=fleet"}, "lock.scope_too_small", "MEGA_CACHE_MAIN_URL=redis://"},
		{"the node is required of memory", []string{"MEGA_LOCK_REQUIRE=node"}, "lock.scope_too_small", "unset MEGA_LOCK_REQUIRE"},
		{"the fleet is required of a cluster", []string{"MEGA_LOCK_REQUIRE=fleet", socket}, "lock.scope_too_small", "unset MEGA_LOCK_REQUIRE"},
		{"the fleet is required of memory that was asked for", []string{cacheA, "MEGA_LOCK_DRIVER=memory", "MEGA_LOCK_REQUIRE=fleet"}, "lock.scope_too_small", "unset MEGA_LOCK_DRIVER"},
		{"nats is asked for without a server", []string{"MEGA_BUS_DRIVER=nats"}, "bus.no_server", "MEGA_NATS_URL=nats://"},
		{"the bus of a cluster is asked for outside one", []string{"MEGA_BUS_DRIVER=cluster"}, "bus.no_cluster", "MEGA_CLUSTER_SOCKET=auto"},
		{"the fleet is required of a bus in memory", []string{"MEGA_BUS_REQUIRE=fleet"}, "bus.scope_too_small", "unset MEGA_BUS_REQUIRE"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := load(t, x.environ...)
			d, err := selection.Lock(c, selection.Surroundings{})
			if strings.HasPrefix(x.code, "bus.") {
				d, err = selection.Bus(c, selection.Surroundings{})
			}
			f := refused(t, err, x.code)
			if !strings.Contains(strings.Join(f.Actions, "\n"), x.says) {
				t.Errorf("the actions are %q, want %q among them", f.Actions, x.says)
			}
			if len(d.Candidates) != 3 {
				t.Errorf("the decision is not explained: %+v", d)
			}
		})
	}
}

func refused(t *testing.T, err error, code string) *failure.Failure {
	t.Helper()
	var f *failure.Failure
	if !errors.As(err, &f) || f.Code != code || f.Exit != failure.ExitConfig {
		t.Fatalf("got %v, want %s with status %d", err, code, failure.ExitConfig)
	}
	if len(f.Actions) == 0 || len(f.Actions) > 4 || len(f.Facts) == 0 {
		t.Errorf("%s does not say where it comes from and what to do: %+v", code, f)
	}
	return f
}

func TestAppThatNeedsMoreIsNamedWithItsLine(t *testing.T) {
	s := selection.Surroundings{
		LeftOut: []string{"admin"},
		Requirements: []plan.Requirement{
			{App: "main", Component: "lock", Scope: driver.Node, Site: "shop.go:12"},
			{App: "web", Component: "lock", Scope: driver.Process, Site: "web.go:1"},
			{App: "ledger", Component: "bus", Scope: driver.Fleet, Site: "ledger.go:1"},
		},
	}
	_, err := selection.Lock(load(t), s)
	f := refused(t, err, "lock.scope_too_small")
	want := []failure.Fact{
		{Name: "required by", Value: `app "main", which requires the scope node  (shop.go:12)`},
		{Name: "chosen", Value: "memory, because neither a cache nor a cluster is configured  (cache.<alias>.url: not set)"},
		{Name: "left out", Value: "admin"},
	}
	if !slices.Equal(f.Facts, want) {
		t.Errorf("got %q, want %q", f.Facts, want)
	}
	if _, err := selection.Lock(load(t, cacheA), s); err != nil {
		t.Errorf("redis reaches the node: %v", err)
	}
	_, err = selection.Bus(load(t), s)
	if f := refused(t, err, "bus.scope_too_small"); !strings.Contains(f.Facts[0].Value, "ledger.go:1") {
		t.Errorf("got %q", f.Facts)
	}
}

func TestWhoIsBeyondTheReachOfADriverIsWarnedOf(t *testing.T) {
	for _, x := range []struct {
		name    string
		environ []string
		around  selection.Surroundings
		warns   []string
	}{
		{"memory", nil, selection.Surroundings{}, []string{"exclusion ends at this process"}},
		{"memory, beside apps that are left out", nil, selection.Surroundings{LeftOut: []string{"admin", "api"}}, []string{"ends at this process", "admin, api"}},
		{"memory in one of several workers", []string{"MEGA_LOCK_DRIVER=memory"}, selection.Surroundings{Worker: true}, []string{"ends at this process", "one of several workers"}},
		{"a worker", nil, selection.Surroundings{Worker: true, LeftOut: []string{"admin"}}, []string{"exclusion ends at the workers of this program: another program on this machine does not see its locks"}},
		{"a supervisor", []string{"MEGA_CLUSTER_WORKERS=2"}, selection.Surroundings{}, []string{"exclusion ends at the workers of this program"}},
		{"a worker at a socket", []string{"MEGA_CLUSTER_SOCKET=/run/shop/c.sock"}, selection.Surroundings{Worker: true}, []string{"exclusion ends at this node, and at the socket /run/shop/c.sock"}},
		{"redis", []string{cacheA}, selection.Surroundings{Worker: true, LeftOut: []string{"admin"}}, nil},
	} {
		d, err := selection.Lock(load(t, x.environ...), x.around)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Warnings) != len(x.warns) {
			t.Errorf("%s: got %q, want %q", x.name, d.Warnings, x.warns)
			continue
		}
		for i, w := range x.warns {
			if !strings.Contains(d.Warnings[i], w) {
				t.Errorf("%s: got %q, want %q in it", x.name, d.Warnings[i], w)
			}
		}
	}
}

func TestWiderScopesAreNamed(t *testing.T) {
	const here = "MEGA_CLUSTER_SOCKET=auto, and unset MEGA_LOCK_DRIVER"
	for _, x := range []struct {
		environ []string
		wider   []string
	}{
		{nil, []string{"MEGA_CACHE_MAIN_URL=redis://localhost:6379/0", "MEGA_CLUSTER_SOCKET=auto"}},
		{[]string{cacheA}, nil},
		{[]string{"MEGA_CLUSTER_WORKERS=2"}, []string{"MEGA_CACHE_MAIN_URL=redis://localhost:6379/0", "MEGA_CLUSTER_SOCKET=auto"}},
		{[]string{socket}, []string{"MEGA_CACHE_MAIN_URL=redis://localhost:6379/0"}},
		{[]string{cacheA, "MEGA_LOCK_DRIVER=memory"}, []string{"unset MEGA_LOCK_DRIVER", here}},
		{[]string{cacheA, socket, "MEGA_LOCK_DRIVER=memory"}, []string{"unset MEGA_LOCK_DRIVER"}},
		{[]string{cacheA, cacheB, "MEGA_LOCK_DRIVER=memory"}, []string{"MEGA_LOCK_CACHE=main, and unset MEGA_LOCK_DRIVER", here}},
		{[]string{"MEGA_LOCK_DRIVER=memory"}, []string{"MEGA_CACHE_MAIN_URL=redis://localhost:6379/0, and unset MEGA_LOCK_DRIVER", here}},
	} {
		d, err := selection.Lock(load(t, x.environ...), selection.Surroundings{})
		if err != nil || !slices.Equal(d.Wider, x.wider) {
			t.Errorf("%q: got %q, %v, want %q", x.environ, d.Wider, err, x.wider)
		}
	}
}

// Settings of a server without its address are a mistake, or belong to another
// environment: the program starts, and names them.
func TestSettingsOfANATSServerWithoutItsAddressAreWarnedOf(t *testing.T) {
	const want = "nats.url is not set, so that these settings have no effect: " +
		"nats.password (env MEGA_NATS_PASSWORD), nats.tls.ca (env MEGA_NATS_TLS_CA), nats.user (env MEGA_NATS_USER)"
	set := []string{"MEGA_NATS_USER=ann", "MEGA_NATS_PASSWORD=hidden", "MEGA_NATS_TLS_CA=ca.pem"}
	for _, x := range []struct {
		environ []string
		warned  bool
	}{
		{set, true},
		{append(set, socket), true},
		{append(set, "MEGA_BUS_DRIVER=memory"), true},
		{append(set, "MEGA_NATS_URL=nats://n"), false},
		{nil, false},
	} {
		d, _ := selection.Bus(load(t, x.environ...), selection.Surroundings{})
		if got := slices.Contains(d.Warnings, want); got != x.warned || strings.Contains(strings.Join(d.Warnings, ""), "hidden") {
			t.Errorf("%q: warnings %q, want the settings among them: %v", x.environ, d.Warnings, x.warned)
		}
	}
}
