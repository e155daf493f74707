package request

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// isLocal reports whether a request comes from a browser on this machine, and
// not through the name of another site: the page of an error in env dev shows
// source code.
func isLocal(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && LocalName(r.Host)
}

// LocalName reports whether a Host header names this machine in a way that no
// name server can change: localhost, a name below it, or a loopback address.
func LocalName(host string) bool {
	name := HostName(host)
	ip := net.ParseIP(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || ip != nil && ip.IsLoopback()
}

// HostName returns the name or address in a Host header, in lower case, without
// the port, the brackets of an IPv6 address and the dot at the end of a name.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if bare, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(bare, "]")
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
