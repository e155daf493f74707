package bus

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/megaframework/mega/bus/driver"
)

// The bounds of a header.
const (
	MaxKeys   = 64
	MaxHeader = 8 << 10 // bytes of keys and values; a key counts for each of its values
)

// Headers contains the keys of a message's header and the values of each, in
// order. Keys are case-sensitive. A handler must not change it.
type Headers = driver.Header

// The keys that the bus gives a meaning to.
const (
	// KeyContentType names the codec of the data; without it they are JSON.
	KeyContentType = "Content-Type"
	// KeyID is the key under which [ID] travels.
	KeyID = driver.KeyID
	// The trace context and the baggage of the W3C travel by themselves.
	KeyTraceParent = "traceparent"
	KeyTraceState  = "tracestate"
	KeyBaggage     = "baggage"
)

// checkHeader checks what is to be sent.
func checkHeader(h Headers) error {
	size := 0
	for key, values := range h {
		for _, v := range values {
			n, err := checkPair(key, v)
			if err != nil {
				return err
			}
			size += n
		}
	}
	return checkBounds(len(h), size)
}

// checkPair validates a key and one of its values, and returns their size.
func checkPair(key, value string) (size int, err error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	if err := checkValue(value); err != nil {
		return 0, fmt.Errorf("%w of %q: %w", ErrBadHeader, key, err)
	}
	return len(key) + len(value), nil
}

func checkBounds(keys, size int) error {
	if keys > MaxKeys { // S16
		return fmt.Errorf("%w: %d keys, at most %d are allowed", ErrBadHeader, keys, MaxKeys)
	}
	if size > MaxHeader {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrBadHeader, size, MaxHeader)
	}
	return nil
}

// keyChars reports for each byte whether a key may contain it.
var keyChars = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789") {
		t[c] = true
	}
	for c := byte('a'); c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	return t
}()

func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a key is empty", ErrBadHeader)
	}
	for i := range len(key) {
		if !keyChars[key[i]] {
			return fmt.Errorf("%w: %q is not allowed in a key, as in %.80q", ErrBadHeader, characterAt(key, i), key)
		}
	}
	return nil
}

// isReserved reports whether a key is reserved for the bus or a backend.
func isReserved(key string) bool { return hasPrefixFold(key, "Bus-") || hasPrefixFold(key, "Nats-") }

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// valueError is the reason why a value is refused. The value may be secret and is not
// repeated.
type valueError string

func (e valueError) Error() string { return string(e) }

func checkValue(v string) error {
	switch {
	case isVisible(v):
		return nil
	case !utf8.ValidString(v):
		return valueError("a value is not valid UTF-8")
	case strings.ContainsAny(v, "\r\n\x00"):
		return valueError("a value has a line break or a NUL")
	case strings.TrimSpace(v) != v:
		return valueError("a value begins or ends with white space")
	}
	return nil
}

// isVisible is the check that nearly every value passes: visible ASCII, with
// spaces between.
func isVisible(v string) bool {
	for i := range len(v) {
		if c := v[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return v == "" || v[0] != ' ' && v[len(v)-1] != ' '
}

// cloneHeader copies a header and the lists of its values.
func cloneHeader(h Headers) Headers {
	if len(h) == 0 {
		return nil
	}
	own := make(Headers, len(h))
	for key, values := range h {
		own[key] = slices.Clone(values)
	}
	return own
}
