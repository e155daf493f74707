package limit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// HTTP returns a middleware that allows requests as m does, with keyOf as their
// key: a client, a tenant, an address. A request with an empty key is not
// limited; r.PathValue is empty in a middleware that runs before the route is found,
// such as one of UseStd. A refused request is answered 429 with Retry-After; one
// whose key is not valid 400; 503 one that the backend does not decide, if the
// Outage of m is Closed; 499 one whose client has left meanwhile, which only logs and
// metrics see; and 500 every one if m or an option is not valid.
//
// These answers are plain text. In a handler of package ctx, return the error of
// [Limiter.Wait] with a [MaxWait] of 0 instead: the framework answers it in the form
// that the client accepts.
//
// Each response that the limit has decided has the headers RateLimit-Policy and
// RateLimit, as in draft-ietf-httpapi-ratelimit-headers: the rates, and the one that
// decided with the units that every rate has left. Their times are whole seconds,
// rounded up. RateLimit is missing where no rate has decided, but a pause or the
// Outage [Open].
func HTTP(l *Limiter, keyOf func(*http.Request) string, m Limit, opts ...Option) func(http.Handler) http.Handler {
	policy := m.policy()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := keyOf(r)
			if key == "" {
				next.ServeHTTP(w, r)
				return
			}
			result, err := l.Allow(r.Context(), key, m, opts...)
			if err != nil {
				fail(w, err)
				return
			}
			w.Header().Set("RateLimit-Policy", policy)
			if result.By.N > 0 {
				w.Header().Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", rateName(result.By), result.Remaining, seconds(result.ResetAfter)))
			}
			if !result.Allowed {
				w.Header().Set("Retry-After", strconv.Itoa(max(seconds(result.RetryAfter), 1)))
				http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// clientClosed is the status that nginx and package ctx log for such a request.
const clientClosed = 499

// fail answers a request that was not decided.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	var code interface{ Code() string }
	switch {
	case errors.As(err, &code) && code.Code() == "limit.invalid_key": // often made of client input
		status = http.StatusBadRequest
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrUnsupported):
		status = http.StatusInternalServerError
	case errors.Is(err, context.Canceled):
		status = clientClosed
	default:
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, http.StatusText(status), status)
}

// policy returns the value of RateLimit-Policy.
func (m *Limit) policy() string {
	var all []string
	for _, r := range m.Rates {
		all = append(all, fmt.Sprintf("%q;q=%d;w=%d", rateName(r), r.N, seconds(r.Per)))
	}
	return strings.Join(all, ", ")
}

// seconds rounds d up to seconds.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// rateName returns the name of a rate in the headers: "5-per-800ms".
func rateName(r Rate) string { return fmt.Sprintf("%d-per-%v", r.N, r.Per) }
