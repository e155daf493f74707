package plan

import (
	"errors"
	"testing"

	megactx "github.com/megaframework/mega/ctx"
)

func TestErrorWithWhichRoutesPanicIsTheCause(t *testing.T) {
	cause := errors.New("no such page")
	f := newFunction("Routes", func(megactx.Router) { panic(cause) })
	if err := f.Unbound(nil).AddRoutes(nil); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v as its cause", err, cause)
	}
}
