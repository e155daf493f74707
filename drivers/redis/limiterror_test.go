package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/limit/driver"
	lock "github.com/megaframework/mega/lock/driver"
)

func TestAnErrorOfALimitKeepsItsClassAndItsCause(t *testing.T) {
	timeout := &net.OpError{Op: "dial", Err: context.DeadlineExceeded} // as net.Error of a dial is
	open := &wire.OpenError{Where: "h:1", Err: timeout}
	for _, err := range []error{
		tooLate("take", open), unavailable(open), scanError(t, open),
	} {
		got := limitError(err)
		cause, ok := errors.AsType[*wire.OpenError](got)
		if !errors.Is(got, driver.ErrUnavailable) || errors.Is(got, lock.ErrUnavailable) || !ok || cause != open || strings.Contains(got.Error(), "lock") {
			t.Errorf("%v became %v, with the cause %v", err, got, cause)
		}
	}
	if got, want := limitError(unavailable(limitError(unavailable(os.ErrClosed)))).Error(), "limit: backend unavailable: "+os.ErrClosed.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, err := range []error{nil, context.Canceled, fmt.Errorf("take: %w", context.DeadlineExceeded), os.ErrClosed} {
		if got := limitError(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// scanError returns the error of a scan by a client that fails with err.
func scanError(t *testing.T, err error) error {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, err }})
	defer func() { _ = c.Close() }()
	_, got := scan(t.Context(), c, "*", nil)
	return got
}
