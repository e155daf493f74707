package cli

import (
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/lock"
)

func TestWatchedJSONHasNoCharacterThatATerminalObeys(t *testing.T) {
	var out strings.Builder
	l := &locks{shell: &Shell{Name: "mega", Stdout: &out, JSON: true}}
	held := lock.State{Key: "k", Holders: []lock.Holding{{Holder: lock.Holder{Label: "a\u009b2J\u202eb"}}}}
	if err := l.showOnce([]listed{{Listing: admin.Listing{Locks: []admin.Entry{{State: held}}}}}, nil); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\u009b\u202e") {
		t.Errorf("%q", out.String())
	}
}
