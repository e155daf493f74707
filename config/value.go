package config

import (
	"log/slog"
	"unique"

	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/notation"
)

// hidden is a text that package fmt does not print in a field that is not exported,
// where it calls no method. The zero value is the empty text.
type hidden struct{ handle unique.Handle[string] }

func hide(text []byte) (h hidden) {
	if len(text) > 0 {
		h.handle = unique.Make(string(text))
	}
	return h
}

func (h hidden) reveal() string {
	if h == (hidden{}) {
		return ""
	}
	return h.handle.Value()
}

// Secret is text that masks itself wherever it is printed, logged or encoded.
type Secret struct{ text hidden }

// Reveal returns the text itself.
func (s Secret) Reveal() string { return s.text.reveal() }

// String returns the mask.
func (s Secret) String() string { return mask.Mark }

// GoString returns the mask.
func (s Secret) GoString() string { return mask.Mark }

// LogValue returns the mask.
func (s Secret) LogValue() slog.Value { return slog.StringValue(mask.Mark) }

// MarshalText returns the mask.
func (s Secret) MarshalText() ([]byte, error) { return []byte(mask.Mark), nil }

// UnmarshalText accepts any text.
func (s *Secret) UnmarshalText(text []byte) error {
	s.text = hide(text)
	return nil
}

// URL is an address with a scheme. Its user info and the values of its query
// are masked wherever the URL is printed, logged or encoded.
//
// It is not a [url.URL], because it may name several hosts
// (redis-sentinel://a,b/master) or a file (sqlite://shop.db).
type URL struct{ text hidden }

// Reveal returns the URL as it was configured, with its credentials.
func (u URL) Reveal() string { return u.text.reveal() }

// IsZero reports whether the URL is empty.
func (u URL) IsZero() bool { return u.text == (hidden{}) }

// Scheme returns the text before "://".
func (u URL) Scheme() string { return notation.Scheme(u.Reveal()) }

// String returns the URL masked.
func (u URL) String() string { return mask.URL(u.Reveal()) }

// GoString returns the URL masked.
func (u URL) GoString() string { return u.String() }

// LogValue returns the URL masked.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText returns the URL masked.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText accepts a URL with a scheme and something after it. It also
// checks the hosts of a redis and of a NATS URL; the users of other schemes
// check theirs.
func (u *URL) UnmarshalText(text []byte) error {
	if err := notation.CheckURL(string(text)); err != nil {
		return err
	}
	u.text = hide(text)
	return nil
}

// Addr is an address to listen on: host:port, or :port for every interface.
// Port 0 means a free port.
type Addr string

// UnmarshalText accepts host:port or :port.
func (a *Addr) UnmarshalText(text []byte) error {
	if err := notation.CheckAddr(string(text)); err != nil {
		return err
	}
	*a = Addr(text)
	return nil
}

// Size is a number of bytes, configured with its unit: 1MiB.
type Size int64

// UnmarshalText accepts a number with one of the units B, KiB, MiB, GiB, TiB
// (powers of 1024), and kB, MB, GB, TB (powers of 1000).
func (s *Size) UnmarshalText(text []byte) error {
	n, err := notation.ParseSize(string(text))
	if err == nil {
		*s = Size(n)
	}
	return err
}

// String returns the size in the largest of the units B, KiB, MiB, GiB and TiB that
// gives a whole number: 1MiB.
func (s Size) String() string { return notation.FormatSize(int64(s)) }

// MarshalText returns the size with its unit.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
