package notation

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/internal/mask"
)

// URLPattern matches every URL.
const URLPattern = `^[a-z][a-z0-9+.-]*://[^\x00-\x1f]+$`

var anyURL = regexp.MustCompile(URLPattern)

// Scheme returns the part of a URL before "://".
func Scheme(u string) string {
	scheme, _, _ := strings.Cut(u, "://")
	return scheme
}

// IsURL reports whether s has a scheme and something after it.
func IsURL(s string) bool { return anyURL.MatchString(s) }

// NotURL returns the error for a text that is not a URL. Its example is known, or
// else a URL with the scheme of s, if schemes has it or is empty, or with the first
// of the schemes.
func NotURL(s, known string, schemes []string) error {
	scheme := Scheme(s)
	switch {
	case !strings.Contains(s, "://") || schemes != nil && !slices.Contains(schemes, scheme):
		scheme = slices.Concat(schemes, []string{"https"})[0]
	case Scheme(known) != scheme:
		known = ""
	}
	example := cmp.Or(known, examples[scheme], scheme+"://host")
	return fmt.Errorf("%q is not a URL such as %s", mask.URL(s), example)
}

// Example returns a URL with that scheme, or "" if none is known.
func Example(scheme string) string { return examples[scheme] }

var examples = map[string]string{
	"redis":         "redis://localhost:6379/0",
	"rediss":        "rediss://server.example:6379/0",
	"redis-cluster": "redis-cluster://host1:6379,host2:6379", "rediss-cluster": "rediss-cluster://host1:6379,host2:6379",
	"redis-sentinel": "redis-sentinel://host1,host2,host3/master", "rediss-sentinel": "rediss-sentinel://host1,host2,host3/master",
	"nats": "nats://localhost:4222", "tls": "tls://server.example:4222",
	"sqlite": "sqlite://shop.db", "postgres": "postgres://user:password@host/name", "https": "https://host/path",
}

// CheckURL returns an error if s is not a URL. It also checks the hosts of a
// redis and of a NATS URL; the users of other schemes check theirs.
func CheckURL(s string) error {
	if !IsURL(s) {
		return NotURL(s, "", nil)
	}
	switch Scheme(s) {
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
		bad := checkHost(host)
		if bad == nil {
			continue
		}
		if !strings.Contains(s, "@") && endsInPassword(host) {
			if _, err := netip.ParseAddr(host); err == nil {
				return fmt.Errorf("%s://%s: %s", Scheme(s), mask.Mark, brackets)
			}
			return fmt.Errorf("%s://%s is not a host or host:port; an @ and a host follow a password", Scheme(s), mask.Mark)
		}
		if !strings.Contains(mask.URL(s), host) { // it may be a part of a password
			bad = errors.New("a part before the last @ is not a host or host:port; write %2C for a comma in a password")
		}
		return fmt.Errorf("%s: %w", mask.URL(s), bad)
	}
	return nil
}

// endsInPassword reports whether the text after the colon may be a password, because
// it cannot be a port: the user left out the host.
func endsInPassword(host string) bool {
	_, port, ok := strings.Cut(host, ":")
	return ok && port != "" && !bare.MatchString(port) && !strings.HasPrefix(host, "[")
}

// brackets is the correction for a host with several colons.
const brackets = "an IPv6 address needs brackets, as in [::1]:6379"

func checkHost(host string) error {
	if strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") {
		return fmt.Errorf("%q is not a host or host:port; %s", host, brackets)
	}
	if _, err := url.Parse("redis://" + host); err != nil || host == "" || strings.HasPrefix(host, ":") {
		return fmt.Errorf("%q is not a host or host:port", host)
	}
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		return checkPort(host[i+1:], 1)
	}
	return nil
}

// bare matches a port, also in the place of an address.
var bare = regexp.MustCompile(`^[0-9]{1,5}$`)

// CheckAddr returns an error if s is not host:port or :port.
func CheckAddr(s string) error {
	host, at, err := net.SplitHostPort(s)
	switch {
	case err != nil && bare.MatchString(s):
		return &Error{Text: mask.Quote(s) + " is a port, not an address", Hint: AddrHint(s, "")}
	case err != nil:
		return fmt.Errorf("%s is not an address such as 127.0.0.1:8080 or :8080", mask.Quote(s))
	}
	if err := checkPort(at, 0); err != nil {
		return fmt.Errorf("%s: %w", mask.Quote(s), err)
	}
	if len(at) > 1 && at[0] == '0' { // one address has one text, by which listeners are compared
		return fmt.Errorf("%s: the port %s begins with 0; remove the 0", mask.Quote(s), mask.Quote(at))
	}
	return checkAddrHost(s, host, at)
}

// hostName matches a name that a resolver looks up. Its last label is not a number.
var hostName = regexp.MustCompile(`^([A-Za-z0-9_-]+\.)*[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*\.?$`)

// checkAddrHost returns an error if the host of the address s is not empty, an IP address
// or a name.
func checkAddrHost(s, host, port string) error {
	switch _, err := netip.ParseAddr(host); {
	case err == nil, host == "", hostName.MatchString(host):
		return nil
	case host == "*":
		return &Error{Text: mask.Quote(s) + " is not an address", Hint: "write :" + port + " for every address of the machine"}
	}
	return fmt.Errorf("%s: %s is not an IP address or the name of a host", mask.Quote(s), mask.Quote(host))
}

// AddrHint returns the correction for a port in the place of an address: the
// addresses with this port, each between two of quote. It returns "" for a text
// that is not a port.
func AddrHint(s, quote string) string {
	if !bare.MatchString(s) {
		return ""
	}
	return fmt.Sprintf("write %s127.0.0.1:%s%[1]s, or %[1]s:%[2]s%[1]s for every address of the machine", quote, s)
}

func checkPort(port string, low int) error {
	n, err := strconv.Atoi(port)
	if err != nil || !bare.MatchString(port) || n < low || n > 65535 {
		return errors.New("the port " + mask.Quote(port) + " is not a number from " + strconv.Itoa(low) + " to 65535")
	}
	return nil
}
