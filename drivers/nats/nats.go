// Package nats is the bus driver for NATS. Without the framework:
//
//	d, err := nats.OpenBus(ctx, nats.Config{URL: "nats://localhost:4222"})
//	b, err := bus.New(d, bus.Config{})
//
// # Names
//
// Events have the prefix "ev." and requests the prefix "rpc.", so that the two
// never match each other and `nats sub 'ev.>'` shows the events: see [Config].
// A group is a pattern and a name, but NATS identifies a queue by its name
// alone; so the queue's name contains both, "mailer:order.*". Foreign members
// of a group must use that name. In the name of a group, ":" becomes "%3A", and
// "%" becomes "%25".
//
// # What NATS cannot do
//
// The Lacks of [driver.Info] are the rules that NATS cannot keep, with the reasons. Most
// are about several servers: a client does not learn of losses and delays between them.
// The death of a responder is not reported either: the request ends with
// [driver.ErrTimeout] at its deadline.
//
// # How it works
//
// The driver uses a client, nats.go, for one connection only, and the client
// never reconnects. Accepted messages wait in the outbox. Four goroutines serve
// a connection: the writer hands messages over, the flusher requests the
// server's confirmations, a third one subscribes, and the watchdog checks
// whether bytes move. No other goroutine calls the client, because a call lasts
// as long as a write does, but a call of the driver returns when its context
// ends.
//
//	bus.go      Bus: open, close, and the loop that restores the connection
//	link.go     one connection: its client, its socket, its watchdog
//	move.go     the move to another server before one ends
//	servers.go  the servers that a link tries, and their order
//	socket.go   the network connection beneath the client, and dialers;
//	unsent_*.go what the system holds of it
//	outbox.go   the bounded queue of accepted messages
//	writer.go   the writer and the flusher
//	ledger.go   what is unconfirmed, lost or refused; Flush
//	denial.go   which requests were refused
//	window.go   how much may be unconfirmed
//	topic.go    subscriptions at the server
//	backlog.go  the bound of the messages that wait in the client
//	member.go   the subscriptions of the front, and how subscriptions end
//	refusal.go  errors of the server; permission.go what a user may do
//	foreign.go  servers that are not NATS
//	message.go  subjects, inbox, answers, errors of services
package nats

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/internal/tlsfiles"
)

// Config configures the connection to NATS. URL is sufficient for a server
// without authentication.
type Config struct {
	// URL is the address of a server, or of several servers in one cluster:
	// nats://a:4222,nats://b:4222. The scheme tls requires TLS.
	URL string
	// Name identifies this process in the server's monitoring.
	Name string

	// User and Password, or Token, or the path of a file with an nkey's seed,
	// or of a file with credentials. Credentials in the URL take precedence.
	User, Password, Token, NKeyFile, CredsFile string
	TLS                                        TLS

	// Options are more options of the client. They are applied after the fields
	// above. The driver overrides the options that it depends on: reconnects,
	// pings and flushes. It calls a dialer and handlers that are set here. A handler
	// must not block, except the handler of lame duck mode.
	Options []nats.Option
	// Connect, if set, makes each connection in place of nats.Connect with URL:
	// it passes on the options that it receives, as the last ones.
	Connect func(...nats.Option) (*nats.Conn, error)

	// Prefix precedes the other two, which default to "ev." and "rpc.". Each
	// ends with a dot.
	Prefix, EventPrefix, RequestPrefix string
	// Raw removes the prefix of events, to exchange them with foreign
	// publishers and subscribers. Then patterns that begin with a wildcard,
	// subjects below the prefix of requests or of answers, and patterns that match
	// such subjects are refused, because they would match requests or answers.
	// RawRequests does the same for requests. One of the two needs its prefix.
	Raw, RawRequests bool
	// InboxPrefix is the first part of the subjects of answers, "_INBOX" by
	// default: a permission for it can keep the answers of one process from
	// others. It is not below a prefix of events or requests.
	InboxPrefix string

	// Buffer bounds the messages in the outbox, in bytes, connected or not.
	// Default 8 MiB.
	Buffer int

	// The interval of PINGs on a quiet connection (5s), the timeout of an
	// attempt to connect to one address (5s), and the time after which a
	// connection without a moving byte is closed (15s). Tests shorten them.
	ping, dial, silence time.Duration
	// The bound of the messages that wait in the client for one subscription
	// (64 MiB). Tests lower it.
	backlog int
}

// TLS names files in PEM. CA replaces the system's authorities; Cert and Key
// are the certificate of this process.
type TLS struct {
	CA, Cert, Key string
	// HandshakeFirst begins with TLS, before the greeting of the server, as a
	// server with handshake_first: true requires. A server with auto does not
	// require it, and refuses a client that begins later than after 50 ms.
	HandshakeFirst bool
}

func (c Config) withDefaults() Config {
	c.EventPrefix = cmp.Or(c.EventPrefix, "ev.")
	c.RequestPrefix = cmp.Or(c.RequestPrefix, "rpc.")
	if c.Raw {
		c.EventPrefix = ""
	}
	if c.RawRequests {
		c.RequestPrefix = ""
	}
	c.Buffer = cmp.Or(c.Buffer, 8<<20)
	c.ping = cmp.Or(c.ping, 5*time.Second)
	c.dial = cmp.Or(c.dial, 5*time.Second)
	c.silence = cmp.Or(c.silence, 15*time.Second)
	c.backlog = cmp.Or(c.backlog, maxBacklog)
	return c
}

// check finds mistakes that would otherwise appear later.
func (c Config) check() error {
	for _, prefix := range []string{c.Prefix, c.EventPrefix, c.RequestPrefix, c.InboxPrefix + "."} {
		if prefix != "" && prefix != "." && !isPrefix(prefix) {
			return fmt.Errorf("the prefix %q: want words that each end with a dot, such as a.b.: %w", prefix, driver.ErrInvalid)
		}
	}
	if c.EventPrefix == c.RequestPrefix {
		return fmt.Errorf("events and requests have the same prefix %q: %w", c.EventPrefix, driver.ErrInvalid)
	}
	if !c.Raw && !c.RawRequests && (strings.HasPrefix(c.RequestPrefix, c.EventPrefix) || strings.HasPrefix(c.EventPrefix, c.RequestPrefix)) { // S3
		return fmt.Errorf("one of the prefixes %q of events and %q of requests begins with the other: %w", c.EventPrefix, c.RequestPrefix, driver.ErrInvalid)
	}
	for _, prefix := range []string{c.EventPrefix, c.RequestPrefix} {
		if prefix != "" && strings.HasPrefix(c.InboxPrefix+".", c.Prefix+prefix) { // S3
			return fmt.Errorf("answers, with the prefix %q, are below the prefix %q of events or requests: %w", c.InboxPrefix, c.Prefix+prefix, driver.ErrInvalid)
		}
	}
	if c.Connect != nil {
		return nil
	}
	for server := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return fmt.Errorf("an address is not one of NATS, such as nats://localhost:4222: %w", driver.ErrInvalid) // it may hold a password
		}
	}
	return nil
}

func isPrefix(s string) bool {
	return strings.HasSuffix(s, ".") && !strings.ContainsAny(s, " \t\r\n*>") && !strings.Contains("."+s, "..")
}

// connect makes a client.
func (c Config) connect(options []nats.Option) (*nats.Conn, error) {
	if c.Connect != nil {
		return c.Connect(options...)
	}
	return nats.Connect(c.URL, options...)
}

// options returns the configuration as options of the client.
func (c Config) options() ([]nats.Option, error) {
	o := []nats.Option{nats.Timeout(c.dial)}
	if c.Name != "" {
		o = append(o, nats.Name(c.Name))
	}
	if c.InboxPrefix != "" {
		o = append(o, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	if c.User != "" {
		o = append(o, nats.UserInfo(c.User, c.Password))
	}
	if c.Token != "" {
		o = append(o, nats.Token(c.Token))
	}
	if err := tlsfiles.Readable(c.NKeyFile, c.CredsFile); err != nil {
		return nil, fmt.Errorf("%w: %w", err, driver.ErrInvalid)
	}
	if c.NKeyFile != "" {
		key, err := nats.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the nkey %s: %w: %w", c.NKeyFile, err, driver.ErrInvalid)
		}
		o = append(o, key)
	}
	if c.CredsFile != "" {
		credentials := nats.UserCredentials(c.CredsFile)
		var probe nats.Options
		_ = credentials(&probe) // it sets fields only
		if _, err := probe.SignatureCB(nil); err != nil {
			return nil, fmt.Errorf("read the credentials: %w: %w", err, driver.ErrInvalid)
		}
		o = append(o, credentials)
	}
	secure, err := c.TLS.config()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, driver.ErrInvalid)
	}
	if secure != nil {
		o = append(o, nats.Secure(secure))
	}
	if c.TLS.HandshakeFirst {
		o = append(o, nats.TLSHandshakeFirst())
	}
	return append(o, c.Options...), nil
}

func (t TLS) config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil //nolint:nilnil // TLS is not configured
	}
	return tlsfiles.Files{CA: t.CA, Cert: t.Cert, Key: t.Key}.Config(&tls.Config{MinVersion: tls.VersionTLS12})
}
