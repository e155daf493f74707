package notation_test

import (
	"errors"
	"testing"

	"github.com/megaframework/mega/internal/notation"
)

func TestNumberWithoutItsUnitIsNotASize(t *testing.T) {
	_, err := notation.ParseSize("1500")
	if e, ok := errors.AsType[*notation.Error](err); !ok || !e.NoUnit || e.Hint != "write 1500B or 1500KiB" {
		t.Errorf("got %#v", err)
	}
}

func TestPortIsNotAnAddress(t *testing.T) {
	err := notation.CheckAddr("8080")
	if e, ok := errors.AsType[*notation.Error](err); !ok || e.NoUnit || e.Hint != "write 127.0.0.1:8080, or :8080 for every address of the machine" {
		t.Errorf("got %#v", err)
	}
	if hint := notation.AddrHint("example.org", ""); hint != "" {
		t.Errorf("the hint for a host is %q", hint)
	}
}
