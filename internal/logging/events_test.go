package logging_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/lock"
)

func TestAReleaseWithoutALeaseIsARequestThatIsNotWithdrawn(t *testing.T) {
	for want, e := range map[string]lock.ReleaseFailed{
		`"lock not released, trying again" key=k left=5s`:          {Key: "k", Fence: 7, Err: lock.ErrUnavailable, Left: 5 * time.Second},
		`"lock request not withdrawn, trying again" key=k left=5s`: {Key: "k", Err: lock.ErrUnavailable, Left: 5 * time.Second},
	} {
		var out bytes.Buffer
		(&logging.LockEvents{Log: slog.New(slog.NewTextHandler(&out, nil))}).Observe(e)
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}

// An outage concerns every lease. The line of the lost backend stays among the last
// warnings and errors.
func TestFailedRenewalsAndReleasesAreOneLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		events := logging.LockEvents{Log: slog.New(slog.NewTextHandler(&out, nil))}
		for range 3 {
			for range 1000 {
				events.Observe(lock.RenewFailed{Key: "k", Err: lock.ErrUnavailable, Left: time.Second})
				events.Observe(lock.ReleaseFailed{Key: "k", Fence: 7, Err: lock.ErrUnavailable, Left: time.Second})
			}
			time.Sleep(time.Second)
		}
		wantFailures(t, &out, "key=k left=1s", 1, 1, 1000, 1000, 1000, 1000)
	})
}

// wantFailures fails t unless out has one line with text for each number of failures,
// and no other line.
func wantFailures(t *testing.T, out *bytes.Buffer, text string, failures ...int) {
	t.Helper()
	for _, n := range failures {
		line, _ := out.ReadString('\n')
		if !strings.Contains(line, fmt.Sprintf("%s failures=%d error=", text, n)) {
			t.Errorf("got %s, want %d failures", line, n)
		}
	}
	if out.Len() > 0 {
		t.Errorf("more lines: %s", out.String())
	}
}

// Ticks may follow each other within milliseconds.
func TestTimedRunsThatFailInAnOutageAreOneLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		events := logging.LockEvents{Log: slog.New(slog.NewTextHandler(&out, nil))}
		for range 3 {
			for range 100 {
				events.Observe(lock.Retrying{Key: "k", Err: lock.ErrUnavailable, Pause: time.Millisecond})
			}
			time.Sleep(time.Second)
		}
		wantFailures(t, &out, "key=k pause=1ms", 1, 100, 100)
	})
}

func TestErrorsOfLeadersAreAllLogged(t *testing.T) {
	var out bytes.Buffer
	events := logging.LockEvents{Log: slog.New(slog.NewTextHandler(&out, nil))}
	for _, err := range []string{"first", "second"} {
		events.Observe(lock.Retrying{Key: "k", Err: errors.New(err), Pause: time.Second})
		if want := "key=k pause=1s error=" + err; !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}

// A permission that is revoked under load costs one line a second, which counts the
// messages.
func TestRefusedMessagesAreOneLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		events := logging.BusEvents{Log: slog.New(slog.NewTextHandler(&out, nil))}
		for range 3 {
			for range 1000 {
				events.Observe(bus.PublishRefused{Subject: "a", Err: bus.ErrRefused})
			}
			time.Sleep(time.Second)
		}
		for _, want := range []int{1, 1000, 1000} {
			line, _ := out.ReadString('\n')
			if !strings.Contains(line, fmt.Sprintf(`"published message refused" subject=a messages=%d error=`, want)) {
				t.Errorf("got %s, want %d messages", line, want)
			}
		}
		if out.Len() > 0 {
			t.Errorf("more lines: %s", out.String())
		}
	})
}

func TestFailedHandlerIsLoggedWithItsRequest(t *testing.T) {
	for id, want := range map[string]string{
		"m46as4q3ayg465cu": "subject=a request=m46as4q3ayg465cu error=broken",
		"":                 "subject=a error=broken",
		"forged id":        "subject=a error=broken",
	} {
		var out bytes.Buffer
		m := &bus.Msg{Subject: "a", Header: bus.Headers{}}
		m.Header.Set("X-Request-Id", id)
		events := logging.BusEvents{Log: slog.New(slog.NewTextHandler(&out, nil))}
		events.Observe(bus.HandlerFailed{Msg: m, Err: errors.New("broken")})
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}

// A responder that answers "there is no such product" has not failed: it is the answer
// that a request over HTTP logs as information.
func TestAResponderThatRefusesIsNotAnErrorOfTheService(t *testing.T) {
	refusal := megactx.Error(http.StatusNotFound, "product.not_found", "There is no such product.")
	for _, x := range []struct {
		err     error
		answers bool
		level   string
	}{
		{refusal, true, "INFO"},
		{fmt.Errorf("buy: %w", lock.ErrNotAcquired), true, "INFO"},
		{lock.ErrUnavailable, true, "WARN"},
		{errors.New("broken"), true, "ERROR"},
		{&bus.PanicError{Value: refusal}, true, "ERROR"},
		{refusal, false, "ERROR"}, // nobody receives it
	} {
		var out bytes.Buffer
		events := logging.BusEvents{Log: slog.New(slog.NewTextHandler(&out, nil))}
		events.Observe(bus.HandlerFailed{SubID: bus.SubID{Answers: x.answers}, Msg: &bus.Msg{Subject: "a"}, Err: x.err})
		if !strings.Contains(out.String(), "level="+x.level+" ") {
			t.Errorf("answers %v: got %s, want %s", x.answers, out.String(), x.level)
		}
	}
}
