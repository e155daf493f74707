package listen

import (
	"net"
	"net/http"
	"net/url"

	"github.com/megaframework/mega/internal/request"
)

// localOnly restricts next to requests by a local name. Otherwise a page whose
// own name resolves to a loopback address could read an app there as its own.
func localOnly(next, refusal http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !request.LocalName(r.Host) {
			refusal.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// CrossSite reports whether a browser marks the request as made by the page of
// another site. A link to the address does not count: the other page cannot
// read the response.
func CrossSite(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		return err != nil || u.Host != r.Host
	}
	return r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

// IsLoopback reports whether only this machine can reach an address.
func IsLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
