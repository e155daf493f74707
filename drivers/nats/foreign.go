package nats

import (
	"context"
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

// unlessForeign returns err, the timeout of an attempt to connect, or
// driver.ErrInvalid if every address leads to another kind of server. Such a server
// waits for a request while the client waits for the greeting of NATS, so only a
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
		if kind = foreignKind(firstBytes(ctx, u.Host)); kind == "" {
			return err
		}
	}
	return fmt.Errorf("the server speaks %s, not NATS: check the address: %w: %w", kind, err, driver.ErrInvalid)
}

// foreignKind names the protocol of a server by its answer to a request of HTTP. It
// returns "" if the server may be NATS: a NATS server begins with INFO, whatever it
// receives, or with an error in quotes.
func foreignKind(answer string) string {
	switch {
	case strings.HasPrefix(answer, "HTTP/"):
		return "HTTP"
	case answer == "", strings.HasPrefix("INFO ", answer), strings.HasPrefix(answer, "INFO "), strings.HasPrefix(answer, "-ERR '"), answer[0] == tlsAlert:
		return ""
	}
	return fmt.Sprintf("another protocol (%q)", answer)
}

// tlsAlert is the first byte of a server that accepts only TLS.
const tlsAlert = 21

// firstBytes returns the first bytes that the server at addr sends when it receives
// a request of HTTP, to which servers of many other kinds answer with an error.
func firstBytes(ctx context.Context, addr string) string {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	answer := make([]byte, 20)
	if _, err := io.WriteString(conn, "HEAD / HTTP/1.0\r\n\r\n"); err != nil {
		return ""
	}
	n, _ := io.ReadAtLeast(conn, answer, len("INFO ")) // a shorter answer is one too
	return string(answer[:n])
}
