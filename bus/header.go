package bus

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/megaframework/mega/bus/driver"
)

// The bounds of a header.
const (
	MaxKeys   = 64
	MaxHeader = 8 << 10 // bytes of keys and values; a key counts for each of its values
)

// Headers are what travels beside the data: keys and, for each, its values in
// order. Case counts. A handler must not change it.
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

// checkHeader checks what a caller wants to send.
func checkHeader(h Headers) error {
	if len(h) > MaxKeys {
		return fmt.Errorf("%w: %d keys, at most %d are allowed", ErrBadHeader, len(h), MaxKeys)
	}
	size := 0
	for key, values := range h {
		if err := checkKey(key); err != nil {
			return err
		}
		for _, v := range values {
			if err := checkValue(v); err != nil {
				return fmt.Errorf("%w of %q: %w", ErrBadHeader, key, err)
			}
			size += len(key) + len(v)
		}
	}
	if size > MaxHeader {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrBadHeader, size, MaxHeader)
	}
	return nil
}

// tokenChars are what a key may consist of, beside letters and digits.
const tokenChars = "!#$%&'*+-.^_`|~"

func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a key is empty", ErrBadHeader)
	}
	for i := range len(key) {
		c := key[i]
		if ('a' > c || c > 'z') && ('A' > c || c > 'Z') && ('0' > c || c > '9') && strings.IndexByte(tokenChars, c) < 0 {
			return fmt.Errorf("%w: %q is not allowed in a key, as in %.80q", ErrBadHeader, c, key)
		}
	}
	return nil
}

// isReserved says that a key is the bus's own, or that of a backend.
func isReserved(key string) bool { return hasPrefixFold(key, "Bus-") || hasPrefixFold(key, "Nats-") }

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// valueError says what is wrong with a value, which may be secret and is not
// repeated.
type valueError string

func (e valueError) Error() string { return string(e) }

func checkValue(v string) error {
	switch {
	case !utf8.ValidString(v):
		return valueError("a value is not valid UTF-8")
	case strings.ContainsAny(v, "\r\n\x00"):
		return valueError("a value has a line break or a NUL")
	case strings.TrimSpace(v) != v:
		return valueError("a value begins or ends with white space")
	}
	return nil
}
