package nats

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// foreignBound is how long all addresses together have to show that they are not
// NATS.
const foreignBound = time.Second

// unlessForeign returns err, the timeout or the end of an attempt to connect, with the
// likely cause, or driver.ErrInvalid if every address leads to another kind of server. Such a
// server waits for a request while the client waits for the greeting of NATS, so only a
// request shows the mistake.
func (c Config) unlessForeign(ctx context.Context, err error) error {
	if c.Connect != nil || len(c.Options) > 0 { // they may have a dialer
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), foreignBound) // the attempt may have used up ctx
	defer cancel()
	kind := ""
	for server := range strings.SplitSeq(c.URL, ",") {
		u, invalid := url.Parse(strings.TrimSpace(server))
		if invalid != nil {
			return err
		}
		answer, reached := firstBytes(ctx, u.Host)
		if !reached {
			return err
		}
		if kind = foreignKind(answer); kind != "" {
			continue
		}
		hint := "check that it is a NATS server, and that both sides use TLS or neither"
		if !c.TLS.HandshakeFirst && expectsTLS(ctx, u.Host) {
			hint = "a server expects TLS before the greeting of NATS: check that it is a NATS server; one with handshake_first needs TLS.HandshakeFirst (nats.tls.handshake_first)"
		}
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return fmt.Errorf("the server speaks %s, not NATS: check the address: %w", kind, driver.ErrInvalid)
}

// foreignKind names the protocol of a server by its answer to a request of HTTP. It
// returns "" if the server may be NATS: a NATS server begins with INFO, whatever it
// receives, or with an error in quotes.
func foreignKind(answer string) string {
	switch {
	case strings.HasPrefix(answer, "HTTP/"):
		return "HTTP"
	case strings.HasPrefix(answer, "-ERR unknown command"), strings.HasPrefix(answer, "-NOAUTH "), strings.HasPrefix(answer, "-DENIED "):
		return "Redis"
	case answer == "", strings.HasPrefix("INFO ", answer), strings.HasPrefix(answer, "INFO "), strings.HasPrefix(answer, "-ERR '"), answer[0] == tlsAlert:
		return ""
	}
	return fmt.Sprintf("another protocol (%q)", answer)
}

// tlsAlert is the first byte of a server that accepts only TLS.
const tlsAlert = 21

// expectsTLS reports whether the server at addr begins with TLS, where a NATS server
// sends its greeting.
func expectsTLS(ctx context.Context, addr string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
	return err == nil || strings.Contains(err.Error(), "remote error: tls: ")
}

// firstBytes returns the first bytes that the server at addr sends when it receives
// a request of HTTP, to which servers of many other kinds answer with an error, and
// whether there is a server.
func firstBytes(ctx context.Context, addr string) (first string, reached bool) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", false
	}
	defer func() { _ = conn.Close() }()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	answer := make([]byte, 20)
	if _, err := io.WriteString(conn, "HEAD / HTTP/1.0\r\n\r\n"); err != nil {
		return "", true
	}
	n, _ := io.ReadAtLeast(conn, answer, len("INFO ")) // a shorter answer is one too
	return string(answer[:n]), true
}
