package guard

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/megaframework/mega/lock"
)

// Transport adds the fences of the leases on a request's context to the
// request, in the header [Header], and sends it through base. base may be nil
// for http.DefaultTransport. Without a lease the request is not sent: the error
// is lock.ErrNoLease, or lock.ErrLost if a lease has ended. With more than 64 leases
// it is lock.ErrInvalid.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	fences, err := header(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes it also on errors
		}
		return nil, err
	}
	fenced := r.Clone(r.Context()) // a RoundTripper does not change its request
	if fenced.Header == nil {
		fenced.Header = http.Header{}
	}
	fenced.Header.Set(Header, fences)
	return t.base.RoundTrip(fenced)
}

// Handler passes requests with current fences to next. It answers with a JSON
// problem (RFC 9457) and one of these codes otherwise:
//
//	409  lock.stale        a later holder has written
//	428  lock.no_lease     the request has no fence
//	400  lock.invalid      the header cannot be decoded
//	503  lock.unavailable  s returned an error
//
// The check is on arrival only: the write in next still needs [Tx].
func Handler(next http.Handler, s Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := parse(r.Header.Values(Header))
		if errors.Is(err, lock.ErrNoLease) {
			refuse(w, http.StatusPreconditionRequired, lock.ErrNoLease.Code(), "The request needs the header "+Header+".")
			return
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, lock.ErrInvalid.Code(), err.Error())
			return
		}
		switch err := admit(r.Context(), s, all); {
		case errors.Is(err, lock.ErrStale):
			refuse(w, http.StatusConflict, lock.ErrStale.Code(), "A later holder of the lock has written.")
		case err != nil:
			refuse(w, http.StatusServiceUnavailable, lock.ErrUnavailable.Code(), "The fence cannot be checked. Try again in a moment.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// refuse writes a problem of RFC 9457.
func refuse(w http.ResponseWriter, status int, code, detail string) {
	body, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, code, detail})
	if err != nil { // its fields are strings and a number
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a failed write means that the client disconnected
}
