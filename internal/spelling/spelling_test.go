package spelling_test

import (
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/spelling"
)

func TestNearestNameIsSuggested(t *testing.T) {
	names := []string{"serve", "config", "boot", "doctor", "routes", "lock", "ls", "lock.driver", strings.Repeat("x", 200)}
	for word, want := range map[string]string{
		"sevre": "serve", "server": "serve", "cofnig": "config", "rout": "routes", "lst": "ls", "lokc": "lock", "lock.dirver": "lock.driver", "SERVE": "serve", "DOKTOR": "doctor",
		"buy": "", "x": "", "": "", "restart": "", "bots": "", strings.Repeat("x", 199): "",
	} {
		if got := spelling.Nearest(word, names); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func FuzzNearest(f *testing.F) {
	f.Add("sevre", "serve")
	f.Add("", "ö")
	f.Fuzz(func(t *testing.T, word, name string) {
		if got := spelling.Nearest(word, []string{name}); got != "" && got != name {
			t.Errorf("%q of %q: got %q", word, name, got)
		}
		if len(name) > 1 && len(name) < 100 && spelling.Nearest(name, []string{name}) != name {
			t.Errorf("%q is not nearest to itself", name)
		}
	})
}
