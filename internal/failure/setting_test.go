package failure_test

import (
	"testing"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/settings"
)

func TestActionsNameTheFlagThatSetsAKey(t *testing.T) {
	c, err := settings.Load(settings.Source{Set: []string{"cluster.workers=4", "lock.ttl=20s"}, Flags: map[string]string{"cluster.workers": "--workers"}})
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		failure.Setting(c, "cluster.workers").Value: "cluster.workers = 4  (--workers)",
		failure.Set(c, "cluster.workers", "1"):      "--workers 1",
		failure.Unset(c, "cluster.workers"):         "leave out --workers",
		failure.Set(c, "lock.ttl", "1s"):            "--set lock.ttl=1s",
		failure.Unset(c, "lock.ttl"):                "leave out --set lock.ttl",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	_, err = settings.Load(settings.Source{Set: []string{"cluster.workers=257"}, Flags: map[string]string{"cluster.workers": "--workers"}})
	if want := "--workers: 257 is more than 256"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The program refuses a password on the command line, so the action is the
// variable, without the argument that would override it.
func TestActionsPutNoPasswordOnTheCommandLine(t *testing.T) {
	c, err := settings.Load(settings.Source{Set: []string{"cache.main.url=redis://cache"}})
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		"redis://user:password@host": "MEGA_CACHE_MAIN_URL=redis://user:password@host, without --set cache.main.url",
		"redis://user@host":          "--set cache.main.url=redis://user@host",
	} {
		if got := failure.Set(c, "cache.main.url", value); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
