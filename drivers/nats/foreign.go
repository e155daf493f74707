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

// unlessHTTP returns err, the timeout of an attempt to connect, or driver.ErrInvalid
// if every address leads to an HTTP server. Such a server waits for a request while
// the client waits for the greeting of NATS, so only a request shows the mistake.
func (c Config) unlessHTTP(ctx context.Context, err error) error {
	if c.Connect != nil || len(c.Options) > 0 { // they may have a dialer
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), foreignBound) // the attempt may have used up ctx
	defer cancel()
	for server := range strings.SplitSeq(c.URL, ",") {
		u, invalid := url.Parse(strings.TrimSpace(server))
		if invalid != nil || !speaksHTTP(ctx, u.Host) {
			return err
		}
	}
	return fmt.Errorf("the server speaks HTTP, not NATS: check the address: %w: %w", err, driver.ErrInvalid)
}

// speaksHTTP reports whether the server at addr answers a request of HTTP. A NATS
// server begins with INFO, whatever it receives.
func speaksHTTP(ctx context.Context, addr string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	const status = "HTTP/"
	answer := make([]byte, len(status))
	if _, err := io.WriteString(conn, "HEAD / HTTP/1.0\r\n\r\n"); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, answer)
	return err == nil && string(answer) == status
}
