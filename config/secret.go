package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/megaframework/mega/internal/mask"
)

// Secret is text that masks itself wherever it is printed, logged or encoded.
type Secret struct{ text string }

// Reveal returns the text itself.
func (s Secret) Reveal() string { return s.text }

// String returns the mask.
func (s Secret) String() string { return mask.Mark }

// GoString returns the mask.
func (s Secret) GoString() string { return mask.Mark }

// LogValue returns the mask.
func (s Secret) LogValue() slog.Value { return slog.StringValue(mask.Mark) }

// MarshalText returns the mask.
func (s Secret) MarshalText() ([]byte, error) { return []byte(mask.Mark), nil }

// UnmarshalText takes any text.
func (s *Secret) UnmarshalText(text []byte) error {
	s.text = string(text)
	return nil
}

// URL is an address with a scheme. Its user info and the values of its query
// are masked wherever the URL is printed, logged or encoded.
//
// It is not a [url.URL], because it may name several hosts
// (redis-sentinel://a,b/master) or a file (sqlite://shop.db).
type URL struct{ text string }

// NewURL parses text and returns the URL.
func NewURL(text string) (URL, error) {
	var u URL
	return u, u.UnmarshalText([]byte(text))
}

// Reveal returns the URL as it was configured, with its credentials.
func (u URL) Reveal() string { return u.text }

// IsZero reports whether the URL is empty.
func (u URL) IsZero() bool { return u.text == "" }

// Scheme returns the text before "://".
func (u URL) Scheme() string {
	scheme, _, _ := strings.Cut(u.text, "://")
	return scheme
}

// String returns the URL masked.
func (u URL) String() string { return mask.URL(u.text) }

// GoString returns the URL masked.
func (u URL) GoString() string { return u.String() }

// LogValue returns the URL masked.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText returns the URL masked.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

var urlRule = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^\x00-\x1f]+$`)

// UnmarshalText accepts a URL with a scheme and something after it. It also
// checks the hosts of a redis and of a NATS URL; the users of other schemes
// check theirs.
func (u *URL) UnmarshalText(text []byte) error {
	s := string(text)
	if !urlRule.MatchString(s) {
		return fmt.Errorf("%q is not a URL such as redis://localhost:6379/0", mask.URL(s))
	}
	u.text = s
	switch u.Scheme() {
	case "redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster":
		return checkHosts(s, s)
	case "nats", "tls", "ws", "wss":
		for server := range strings.SplitSeq(s, ",") {
			if err := checkHosts(s, server); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkHosts checks the hosts of a URL, or of a server that is a part of it.
func checkHosts(s, server string) error {
	_, rest, ok := strings.Cut(server, "://")
	if !ok {
		rest = server // nats://a,b
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 && strings.Contains(rest[end:], "@") {
		return fmt.Errorf("%s: the password contains a /, ? or #: write %%2F, %%3F or %%23 for it, and %%40 for an @", mask.URL(s))
	}
	rest, _, _ = strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	for host := range strings.SplitSeq(authority, ",") {
		if _, err := url.Parse("redis://" + host); err != nil || host == "" || strings.HasPrefix(host, ":") {
			return fmt.Errorf("%s: %q is not a host or host:port", mask.URL(s), host)
		}
		if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
			if err := checkPort(host[i+1:], 1); err != nil {
				return fmt.Errorf("%s: %w", mask.URL(s), err)
			}
		}
	}
	return nil
}

// Addr is an address to listen on: host:port, or :port for every interface.
// Port 0 means a free port.
type Addr string

// UnmarshalText takes host:port or :port.
func (a *Addr) UnmarshalText(text []byte) error {
	_, port, err := net.SplitHostPort(string(text))
	switch {
	case err != nil && portRule.Match(text):
		return &mismatch{fmt.Sprintf("%q is a port, not an address", text), addrHint(string(text), "")}
	case err != nil:
		return fmt.Errorf("%q is not an address such as 127.0.0.1:8080 or :8080", text)
	}
	if err := checkPort(port, 0); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	*a = Addr(text)
	return nil
}

// portRule matches a port in the place of an address.
var portRule = regexp.MustCompile(`^[0-9]{1,5}$`)

// addrHint returns the addresses with a port, each between two quotes.
func addrHint(port, quote string) string {
	return fmt.Sprintf("write %s127.0.0.1:%s%[1]s, or %[1]s:%[2]s%[1]s for every address of the machine", quote, port)
}

func checkPort(port string, low int) error {
	n, err := strconv.Atoi(port)
	if err != nil || n < low || n > 65535 {
		return errors.New("the port " + quote(port) + " is not a number from " + strconv.Itoa(low) + " to 65535")
	}
	return nil
}
