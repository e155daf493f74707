// Package nats is the driver that carries messages through NATS. Without the
// framework:
//
//	d, err := nats.OpenBus(ctx, nats.Config{URL: "nats://localhost:4222"})
//	b, err := bus.New(d, bus.Config{})
//
// # Names
//
// Events live under "ev." and requests under "rpc.", so that the two never meet
// and `nats sub 'ev.>'` shows the events: see [Config]. A group is a pattern and
// a name, while NATS knows a queue by its name alone; so the queue is called by
// both, "mailer:order.*". Foreign members of a group have to use that name.
//
// # What NATS cannot say
//
// Nobody tells who asked that a responder has died, once it had the request:
// the answer is [driver.ErrTimeout] at the deadline. In a cluster of servers,
// interest spreads a moment after Subscribe has returned: what is published
// through another server in that moment is not seen. Both are in [driver.Info].
package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
)

// Config says where NATS is and how to be let in. URL alone is enough for a
// server that lets everyone in.
type Config struct {
	// URL is a server's address, or those of several in one cluster:
	// nats://a:4222,nats://b:4222. The scheme tls asks for TLS.
	URL string
	// Name is what the server's monitoring calls this process.
	Name string

	// User and Password, or Token, or the path of a file with an nkey's seed,
	// or of one with credentials. What the URL says comes first.
	User, Password, Token, NKeyFile, CredsFile string
	TLS                                        TLS

	// Prefix stands before the other two, which default to "ev." and "rpc.".
	// Each ends with a dot.
	Prefix, EventPrefix, RequestPrefix string
	// Raw leaves events without a prefix of their own, for a meeting with
	// foreign publishers and subscribers. It costs something: patterns that
	// begin with a wildcard, and subjects below the prefix of requests, are
	// refused, since they would see what is not theirs.
	Raw bool

	// Buffer bounds what may wait to be sent, in bytes, connected or not.
	// Default 8 MiB.
	Buffer int

	// How often the server is asked whether it is there, by default every 5s,
	// and what bounds an attempt to reach it, by default 2s: tests cannot wait
	// for that.
	ping, dial time.Duration
}

// TLS names files in PEM. CA replaces the system's authorities; Cert and Key
// show who this process is.
type TLS struct{ CA, Cert, Key string }

func (c Config) withDefaults() Config {
	c.EventPrefix = cmp.Or(c.EventPrefix, "ev.")
	c.RequestPrefix = cmp.Or(c.RequestPrefix, "rpc.")
	if c.Raw {
		c.EventPrefix = ""
	}
	c.Buffer = cmp.Or(c.Buffer, 8<<20)
	c.ping = cmp.Or(c.ping, 5*time.Second)
	c.dial = cmp.Or(c.dial, 2*time.Second)
	return c
}

// check finds what would otherwise come up as a surprise later.
func (c Config) check() error {
	for _, prefix := range []string{c.Prefix, c.EventPrefix, c.RequestPrefix} {
		if prefix != "" && (!strings.HasSuffix(prefix, ".") || strings.ContainsAny(prefix, " \t\r\n*>") || strings.Contains("."+prefix, "..")) {
			return fmt.Errorf("the prefix %q is not made of words, each with a dot behind it: %w", prefix, driver.ErrInvalid)
		}
	}
	if c.EventPrefix == c.RequestPrefix {
		return fmt.Errorf("events and requests have the same prefix %q: %w", c.EventPrefix, driver.ErrInvalid)
	}
	for server := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return fmt.Errorf("an address is not one of NATS, such as nats://localhost:4222: %w", driver.ErrInvalid) // it may hold a password
		}
	}
	return nil
}

// A server that has answered none of so many pings is given up, and so is one
// that has taken nothing for the time of so many.
const pings, stalls = 2, 2

// options is the configuration in the words of the client.
func (c Config) options() ([]nats.Option, error) {
	o := []nats.Option{
		nats.Name(c.Name), nats.Timeout(c.dial), nats.ReconnectBufSize(c.Buffer),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(c.ping), nats.MaxPingsOutstanding(pings),
	}
	if c.User != "" {
		o = append(o, nats.UserInfo(c.User, c.Password))
	}
	if c.Token != "" {
		o = append(o, nats.Token(c.Token))
	}
	if c.NKeyFile != "" {
		key, err := nats.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the nkey %s: %w: %w", c.NKeyFile, err, driver.ErrInvalid)
		}
		o = append(o, key)
	}
	if c.CredsFile != "" {
		if _, err := os.Stat(c.CredsFile); err != nil {
			return nil, fmt.Errorf("read the credentials: %w: %w", err, driver.ErrInvalid)
		}
		o = append(o, nats.UserCredentials(c.CredsFile))
	}
	secure, err := c.TLS.config()
	if err != nil {
		return nil, err
	}
	if secure != nil {
		o = append(o, nats.Secure(secure))
	}
	return o, nil
}

func (t TLS) config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil //nolint:nilnil // no TLS is asked for
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authority: %w: %w", err, driver.ErrInvalid)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("there is no certificate in %s: %w", t.CA, driver.ErrInvalid)
		}
	}
	if t.Cert != "" || t.Key != "" {
		cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w: %w", err, driver.ErrInvalid)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// OpenBus connects, once: it returns an error if no server lets this process in
// before ctx ends. From then on the connection is restored for ever.
//
// The error wraps driver.ErrInvalid if c can never work.
func OpenBus(ctx context.Context, c Config) (*Bus, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("open the bus: %w", err)
	}
	options, err := c.options()
	if err != nil {
		return nil, fmt.Errorf("open the bus: %w", err)
	}
	b := newBus(c)
	options = append(options, b.options()...)
	if err := b.connect(ctx, options); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return b, nil
}

// connect gives up waiting when ctx ends; an attempt that is under way ends by
// itself and leaves nothing.
func (b *Bus) connect(ctx context.Context, options []nats.Option) error {
	type outcome struct {
		conn *nats.Conn
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		conn, err := nats.Connect(b.config.URL, options...)
		done <- outcome{conn, err}
	}()
	select {
	case o := <-done:
		b.conn = o.conn
		if o.err != nil {
			b.pipes.Wait()
			return b.because(o.err)
		}
		return b.open(ctx)
	case <-ctx.Done():
		if o := <-done; o.conn != nil { // within the bound of an attempt, for each address
			o.conn.Close()
			<-b.closed
		}
		b.pipes.Wait()
		return ctx.Err()
	}
}
