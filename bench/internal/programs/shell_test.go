package programs

import (
	"strings"
	"testing"

	"github.com/megaframework/mega/bench/internal/lab"
)

func TestShellRowNamesTheMissingPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := newScripts(t.Context(), lab.New(true))
	if err == nil || !strings.Contains(err.Error(), "install the package") {
		t.Errorf("got %v", err)
	}
}
