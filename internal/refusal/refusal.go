// Package refusal recognises refusals of Redis and NATS servers that end only when
// somebody changes the configuration of the program or of the server (L21).
package refusal

import (
	"crypto/tls"
	"errors"
	"strconv"
	"strings"
	"syscall"
)

// Kind is the reason for a refusal.
type Kind int

// The kinds of refusals. None stands for all other errors. They may pass by
// themselves while servers and networks start or move:
//
//   - connection refused, a host name without an address, timeouts
//   - a connection that the server ends: it also does so while it stops, or
//     with too many clients
//   - LOADING, MASTERDOWN, CLUSTERDOWN, BUSY, and a replica: a failover may make
//     it the master
//   - a master that the sentinels do not know yet
//   - a certificate that is not valid yet: a clock may be about to be set
const (
	None        Kind = iota
	Login            // credentials or permissions
	Certificate      // one side does not accept the other's certificate, or TLS settings
	Encryption       // this side uses TLS, and the server does not
	Database         // the server has no database of that number
	Disabled         // the server has disabled a command, as with rename-command, or is too old to have it
	Foreign          // it is not a server of that kind
)

// Of returns the kind of refusal that err, or an error that it wraps, reports.
// The clients have no types for most of these errors, so Of compares their texts.
func Of(err error) Kind {
	text := err.Error()
	if _, each, found := strings.Cut(text, "all sentinels specified in configuration are unreachable: "); found {
		for line := range strings.Lines(each) { // each sentinel has a line
			if of(line) == None {
				return None // it may start later, and know the master
			}
		}
	}
	answer := record(err)
	if answer == `"HTTP/"` || answer == `"INFO "` && !strings.Contains(text, "nats: ") { // the client of NATS may begin with TLS
		return Foreign
	}
	return of(text)
}

// Server names the kind of server that the cause of a [Foreign] refusal shows, such
// as "a NATS server". It returns "" for an unknown kind.
func Server(err error) string {
	text := err.Error() + record(err)
	for _, s := range servers {
		if strings.Contains(text, s.text) {
			return s.name
		}
	}
	return ""
}

// servers are the answers of other kinds of servers, as errors quote them.
var servers = []struct{ text, name string }{
	{`"INFO `, "a NATS server"},
	{`"HTTP/`, "an HTTP server"},
	{"speaks HTTP, not NATS", "an HTTP server"}, // of this program's driver
	{"speaks Redis, not NATS", "a Redis"},
}

// OfClient reports whether the cause of a [Certificate] refusal is that the server does not
// accept the certificate of this side, or that this side has none.
func OfClient(err error) bool {
	_, alert, found := strings.Cut(err.Error(), "remote error: tls: ")
	return found && strings.Contains(alert, "certificate")
}

// EndedByServer reports whether a write failed because the server has ended the
// connection. Its last data, such as the reason, can still be read.
func EndedByServer(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// record quotes the beginning of an answer without TLS that was read as TLS. The text of
// the error does not have it.
func record(err error) string {
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return strconv.Quote(string(e.RecordHeader[:]))
	}
	return ""
}

func of(text string) Kind {
	for _, r := range refusals {
		if strings.Contains(text, r.text) && (r.unless == "" || !strings.Contains(text, r.unless)) {
			return r.kind
		}
	}
	return None
}

// refusals are error texts of the servers, of their clients and of crypto/tls.
var refusals = []struct {
	kind         Kind
	text, unless string
}{
	{Login, "WRONGPASS ", ""},
	{Login, "NOAUTH ", ""},
	{Login, "NOPERM ", ""},
	{Login, "ERR invalid password", ""},
	{Login, "ERR AUTH ", ""},
	{Login, "ERR Client sent AUTH", ""},
	{Login, "The user executing the script can't ", ""}, // Redis 7.0; later versions:
	{Login, "ACL failure in script", ""},
	{Login, "nats: Authorization Violation", ""},
	{Login, "nats: authorization violation", ""},
	{Login, "nats: authentication expired", ""},
	{Login, "nats: authentication revoked", ""},
	{Login, "nats: account authentication expired", ""},
	{Login, "nats: user authentication expired", ""},
	{Login, "nats: user authentication revoked", ""},
	{Login, "nats: permissions violation", ""},
	{Login, "nats: nkeys not supported by the server", ""},

	{Certificate, "tls: failed to verify certificate: ", " is before "},
	{Certificate, "remote error: tls: ", "internal error"}, // also of a server that gets its certificate later

	{Encryption, "tls: first record does not look like a TLS handshake", ""},
	{Encryption, "nats: secure connection not available", ""},

	{Database, "ERR DB index is out of range", ""},

	{Disabled, "ERR unknown command 'eval", ""}, // also EVALSHA; Redis before 7.0 has other quotes
	{Disabled, "ERR unknown command `eval", ""},
	{Disabled, "ERR unknown command 'ping'", ""},
	{Disabled, "ERR unknown command `ping`", ""},
	{Disabled, "ERR unknown command 'publish'", ""},
	{Disabled, "ERR unknown command `publish`", ""},
	{Disabled, "ERR unknown command 'subscribe'", ""},
	{Disabled, "ERR unknown command `subscribe`", ""},
	{Disabled, "ommand called from ", ""}, // by a script: "Unknown Redis command", without the name in Valkey

	{Foreign, "ERR This instance has cluster support disabled", ""},
	{Foreign, "ERR SELECT is not allowed in cluster mode", ""},
	{Foreign, "ERR unknown command", ""},
	{Foreign, "redis: can't parse ", ""},
	{Foreign, "redis: invalid reply: ", ""},
	{Foreign, "nats: protocol exception, INFO not received", ""},
	{Foreign, ", not NATS: check the address", ""}, // of this program's driver
}
