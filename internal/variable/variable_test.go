package variable_test

import (
	"testing"

	"github.com/megaframework/mega/internal/variable"
)

func TestLastValueOfAVariableCounts(t *testing.T) {
	environ := []string{"A=1", "AB=2", "A=3=4", "B=", "C"}
	for name, want := range map[string]string{"A": "3=4", "AB": "2", "B": "", "C": "", "D": ""} {
		if got := variable.Get(environ, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
