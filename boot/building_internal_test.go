package boot

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/megaframework/mega/internal/plan"
)

// The timeout is noticed only after the function has returned.
func TestMiddlewareThatReturnsAtItsTimeoutIsNamed(t *testing.T) {
	same := func(next http.Handler) http.Handler { return next }
	a := &building{}
	a.use(plan.Function{Option: "Use", Site: "main.go:7", Value: reflect.ValueOf(same)}.Unbound(nil))
	about := a.called(a.lastStd)
	a.std[0](http.NotFoundHandler())
	if kind, facts := about(); kind != "A function of mega.Use" || facts[1].Value != "mega.Use, main.go:7" {
		t.Errorf("got %s, %v", kind, facts)
	}
}
