package ops

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/megaframework/mega/internal/listen"
	"github.com/megaframework/mega/internal/request"
)

// guard refuses requests that would change something, except actions of the
// console, requests that a browser makes for the page of another site, and
// requests for private pages without permission.
type guard struct {
	next    http.Handler
	local   bool   // the listener is on a loopback address
	actions bool   // the console may change something
	token   bearer // that private pages need
}

// Release is the path of the console's action: POST ends the leases of a lock.
const Release = "/console/release"

type actionsKey struct{}

// MayAct reports whether the ops listener accepts actions of the console.
func MayAct(r *http.Request) bool { return r.Context().Value(actionsKey{}) != nil }

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Frame-Options", "DENY")
	if g.actions {
		r = r.WithContext(context.WithValue(r.Context(), actionsKey{}, true))
	}
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead
	switch {
	case changes && (r.Method != http.MethodPost || r.URL.Path != Release):
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "request.method_not_allowed", errors.New("the ops listener is read-only; use the admin socket"))
	case g.local && r.Host != "" && !request.LocalName(r.Host):
		// A page whose own name resolves to a loopback address could read these
		// pages as its own. A request without a host comes from no browser: the
		// health checks of HAProxy have none.
		refuse(w, http.StatusForbidden, "ops.foreign_host", errors.New("the host of the request is not localhost or a loopback address"))
	case listen.CrossSite(r), changes && !sameOrigin(r):
		refuse(w, http.StatusForbidden, "request.cross_origin", errors.New("a page of another site made this request"))
	case changes && !g.actions:
		refuse(w, http.StatusForbidden, "ops.actions_off", errors.New("the console changes nothing here; set ops.actions: true, or use the admin socket"))
	case isPublic(r.URL.Path) || g.local && !g.token.isSet():
		g.next.ServeHTTP(w, r)
	case !g.token.isSet():
		refuse(w, http.StatusForbidden, "ops.token_not_set", errors.New("this address serves only probes and metrics; set ops.token to serve the other pages"))
	case isConsole(r.URL.Path) && !g.token.allows(r) && !g.token.isPassword(r):
		w.Header().Set("WWW-Authenticate", `Basic realm="ops.token is the password", charset="UTF-8"`)
		refuse(w, http.StatusUnauthorized, "ops.unauthorized", errors.New("ops.token is required; log in with any user name, and with the token as the password"))
	case !isConsole(r.URL.Path) && !g.token.allows(r):
		w.Header().Set("WWW-Authenticate", `Bearer realm="ops"`)
		refuse(w, http.StatusUnauthorized, "ops.unauthorized", errors.New("ops.token is required; send the header Authorization: Bearer TOKEN"))
	default:
		g.next.ServeHTTP(w, r)
	}
}

// sameOrigin reports whether the headers of a browser show that a page of this
// listener makes the request. It returns false without such headers: every browser
// that runs the console sends one with a form.
func sameOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "" {
		return site == "same-origin"
	}
	return r.Header.Get("Origin") != "" // CrossSite has compared it
}

// isPublic reports whether a page is open to everyone: the probes, the metrics
// and the list of pages. Only the exact paths match, so that no other spelling
// of a private path is public.
func isPublic(path string) bool {
	switch path {
	case "/", "/livez", "/readyz", "/startupz", "/metrics":
		return true
	}
	return false
}

// isConsole reports whether a page is one of the console. There the token may
// also come as a password, because a browser has no other way to send it.
func isConsole(path string) bool { return path == "/console" || strings.HasPrefix(path, "/console/") }

// bearer is the token that a request has to carry. The zero bearer is not set,
// and allows no request.
type bearer struct {
	set bool
	sum [sha256.Size]byte
}

func newBearer(token string) bearer { return bearer{token != "", sha256.Sum256([]byte(token))} }

func (b bearer) isSet() bool { return b.set }

// allows reports whether a request carries the token. It compares hashes in
// constant time, so that neither the token nor its length can be measured.
func (b bearer) allows(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && b.is(strings.TrimSpace(token))
}

// isPassword reports whether a request carries the token as the password of
// any user.
func (b bearer) isPassword(r *http.Request) bool {
	_, password, ok := r.BasicAuth()
	return ok && b.is(password)
}

// is reports whether token is the token of b.
func (b bearer) is(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return b.set && subtle.ConstantTimeCompare(sum[:], b.sum[:]) == 1
}
