package boot_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/config"
)

func TestSelection(t *testing.T) {
	const a, b = "MEGA_CACHE_MAIN_URL=redis://a", "MEGA_CACHE_OTHER_URL=redis://b"
	for _, x := range []struct {
		name    string
		environ []string
		chosen  string // or the code of the failure
		cache   string
		key     string // that decided
		origin  string
	}{
		{"nothing is configured", nil, "memory", "", "cache.<alias>.url", "not set"},
		{"a cache is configured", []string{a}, "redis", "main", "cache.main.url", "env MEGA_CACHE_MAIN_URL"},
		{"two caches, and one is meant", []string{a, b, "MEGA_LOCK_CACHE=other"}, "redis", "other", "cache.other.url", "env MEGA_CACHE_OTHER_URL"},
		{"two caches, and nobody says which", []string{a, b}, "lock.ambiguous_cache", "", "", ""},
		{"redis is asked for", []string{a, "MEGA_LOCK_DRIVER=redis"}, "redis", "main", "lock.driver", "env MEGA_LOCK_DRIVER"},
		{"redis is asked for without a cache", []string{"MEGA_LOCK_DRIVER=redis"}, "lock.no_cache", "", "", ""},
		{"redis is asked for with two caches", []string{a, b, "MEGA_LOCK_DRIVER=redis"}, "lock.ambiguous_cache", "", "", ""},
		{"memory is asked for beside a cache", []string{a, "MEGA_LOCK_DRIVER=memory"}, "memory", "", "lock.driver", "env MEGA_LOCK_DRIVER"},
		{"memory is asked for beside two caches", []string{a, b, "MEGA_LOCK_DRIVER=memory"}, "memory", "", "lock.driver", "env MEGA_LOCK_DRIVER"},
		{"auto is asked for", []string{"MEGA_LOCK_DRIVER=auto"}, "memory", "", "cache.<alias>.url", "not set"},
		{"cluster is asked for", []string{"MEGA_LOCK_DRIVER=cluster"}, "lock.driver_missing", "", "", ""},
		{"the fleet is required of memory", []string{"MEGA_LOCK_REQUIRE=fleet"}, "lock.scope_too_small", "", "", ""},
		{"the node is required of memory", []string{"MEGA_LOCK_REQUIRE=node"}, "lock.scope_too_small", "", "", ""},
		{"the process is required of memory", []string{"MEGA_LOCK_REQUIRE=process"}, "memory", "", "cache.<alias>.url", "not set"},
		{"the fleet is required of redis", []string{a, "MEGA_LOCK_REQUIRE=fleet"}, "redis", "main", "cache.main.url", "env MEGA_CACHE_MAIN_URL"},
		{"the fleet is required of memory that was asked for", []string{a, "MEGA_LOCK_DRIVER=memory", "MEGA_LOCK_REQUIRE=fleet"}, "lock.scope_too_small", "", "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, err := config.Load(config.Source{Environ: x.environ})
			if err != nil {
				t.Fatal(err)
			}
			d, err := boot.SelectLock(c)
			if strings.Contains(x.chosen, ".") {
				refused(t, err, x.chosen)
				return
			}
			if err != nil || d.Chosen != x.chosen || d.Cache != x.cache || d.Key != x.key || d.Origin != x.origin {
				t.Errorf("got %+v, %v, want %s %s by %s (%s)", d, err, x.chosen, x.cache, x.key, x.origin)
			}
			explained(t, d)
		})
	}
}

func refused(t *testing.T, err error, code string) {
	t.Helper()
	var f *boot.Failure
	if !errors.As(err, &f) || f.Code != code || f.Exit != boot.ExitConfig {
		t.Fatalf("got %v, want %s with status %d", err, code, boot.ExitConfig)
	}
	if len(f.Actions) == 0 || len(f.Actions) > 4 || len(f.Facts) == 0 {
		t.Errorf("%s does not say where it comes from and what to do: %+v", code, f)
	}
}

// Every decision accounts for every driver, and memory comes with a warning.
func explained(t *testing.T, d boot.Decision) {
	t.Helper()
	var names []string
	chosen := 0
	for _, c := range d.Candidates {
		names = append(names, c.Name)
		if c.Reason == "" {
			t.Errorf("%s has no reason", c.Name)
		}
		if c.Outcome == boot.Chosen {
			chosen++
			if c.Name != d.Chosen || c.Key != d.Key || c.Origin != d.Origin {
				t.Errorf("the chosen candidate is %+v in %+v", c, d)
			}
		}
	}
	if !slices.Equal(names, []string{"redis", "cluster", "memory"}) || chosen != 1 {
		t.Errorf("the candidates are %v, %d of them chosen", names, chosen)
	}
	if warned := len(d.Warnings) > 0; warned != (d.Chosen == "memory") {
		t.Errorf("%s has the warnings %q", d.Chosen, d.Warnings)
	}
}
