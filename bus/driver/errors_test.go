package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/megaframework/mega/bus/driver"
)

func TestEveryErrorHasItsOwnCode(t *testing.T) {
	seen := map[string]bool{}
	for _, err := range []error{
		driver.ErrBadSubject, driver.ErrBadGroup, driver.ErrBadHeader, driver.ErrInvalid, driver.ErrTooLarge, driver.ErrClosed,
		driver.ErrDraining, driver.ErrNoResponders, driver.ErrTimeout, driver.ErrOverloaded, driver.ErrDisconnected,
		driver.ErrTerminated, driver.ErrDecode, driver.ErrCycle, driver.ErrUnsupported, &driver.PanicError{},
	} {
		coded, ok := errors.AsType[interface {
			error
			Code() string
		}](fmt.Errorf("publish: %w", err))
		if !ok || !strings.HasPrefix(coded.Code(), "bus.") || seen[coded.Code()] || !strings.HasPrefix(err.Error(), "bus: ") {
			t.Errorf("%v has the code %v", err, coded)
			continue
		}
		seen[coded.Code()] = true
	}
}

func TestErrorsWithDetailsAreTheirSentinels(t *testing.T) {
	large := &driver.TooLargeError{Subject: "a", Size: 11, Limit: 10}
	if !errors.Is(large, driver.ErrTooLarge) || large.Code() != driver.ErrTooLarge.Code() || !strings.Contains(large.Error(), "11 bytes") {
		t.Errorf("%v, %s", large, large.Code())
	}
	remote := &driver.RemoteError{Reason: "stock.gone", Message: "none left"}
	if remote.Code() != "stock.gone" || !strings.Contains(remote.Error(), "stock.gone: none left") {
		t.Errorf("%v, %s", remote, remote.Code())
	}
	cause := errors.New("disk full")
	if p := (&driver.PanicError{Value: cause}); !errors.Is(p, cause) || !strings.Contains(p.Error(), "disk full") {
		t.Errorf("%v", p)
	}
	if p := (&driver.PanicError{}); errors.Unwrap(p) != nil || strings.Contains(p.Error(), "panic") {
		t.Errorf("%v", p)
	}
}

func TestKindsAndScopesHaveNames(t *testing.T) {
	for got, want := range map[fmt.Stringer]string{
		driver.Event: "event", driver.Request: "request", driver.Answer: "answer", driver.Kind(9): "kind(9)",
		driver.Process: "process", driver.Node: "node", driver.Fleet: "fleet", driver.Scope(9): "scope(9)",
	} {
		if got.String() != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestHeaderIsACarrier(t *testing.T) {
	h := driver.Header{}
	h.Set("b", "1")
	h.Add("a", "2")
	h.Add("a", "3")
	h.Set("b", "4")
	if got := fmt.Sprintf("%q %q %q %q %q", h.Keys(), h.Get("a"), h.Values("a"), h.Get("b"), h.Get("none")); got != `["a" "b"] "2" ["2" "3"] "4" ""` {
		t.Errorf("got %q", got)
	}
}
