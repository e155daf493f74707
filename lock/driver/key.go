package driver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKey bounds a key, in bytes.
const MaxKey = 512

// KeyFault returns what is wrong with a key that is out of bounds or has an
// invisible character (L14), or "".
func KeyFault(key string) string {
	switch {
	case key == "":
		return "key is empty"
	case len(key) > MaxKey:
		return fmt.Sprintf("key %.40q… has %d bytes, want at most %d", key, len(key), MaxKey)
	case isPlain(key):
		return ""
	case !utf8.ValidString(key):
		return fmt.Sprintf("key %q is not valid UTF-8", key)
	}
	for _, r := range key {
		if unicode.In(r, unicode.Z, unicode.Cc, unicode.Cf) {
			return fmt.Sprintf("key %q contains %q; white space, control and format characters are not allowed", key, r)
		}
	}
	return ""
}

// maxNamespace bounds a namespace, in bytes.
const maxNamespace = 64

// NamespaceFault returns what a namespace must be, if it is not that, or "". The
// empty namespace is the default (L24).
func NamespaceFault(namespace string) string {
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	if strings.Trim(namespace, chars) == "" && len(namespace) <= maxNamespace {
		return ""
	}
	return fmt.Sprintf("want at most %d letters, digits, '.', '_' and '-'", maxNamespace)
}

// isPlain reports whether key is visible ASCII, as nearly every key is.
func isPlain(key string) bool {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return false
		}
	}
	return true
}
