package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// Size is a number of bytes, configured with its unit: 1MiB.
type Size int64

var sizeRule = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB)$`)

// units are the units of sizeRule. The binary units come first, the largest
// first, because String uses the largest that fits.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3},
}

// UnmarshalText accepts a number with one of the units B, KiB, MiB, GiB, TiB
// (powers of 1024), and kB, MB, GB, TB (powers of 1000).
func (s *Size) UnmarshalText(text []byte) error {
	if string(text) == "0" {
		*s = 0
		return nil
	}
	if isNumber(string(text)) {
		return &unitError{string(text), "B", "KiB"}
	}
	m := sizeRule.FindStringSubmatch(string(text))
	if m == nil {
		return fmt.Errorf("%s is not a size such as 512KiB or 1.5MiB", quote(string(text)))
	}
	n, err := strconv.ParseFloat(m[1]+m[2], 64)
	if err != nil {
		return fmt.Errorf("%s is not a size: %w", quote(string(text)), err)
	}
	for _, u := range units {
		if u.name == m[3] {
			n *= float64(u.bytes)
		}
	}
	if n >= math.MaxInt64 || n != math.Trunc(n) {
		return fmt.Errorf("%s is not a whole number of bytes below 8EiB", quote(string(text)))
	}
	*s = Size(n)
	return nil
}

// String returns the size with the largest unit that gives a whole number:
// 1MiB.
func (s Size) String() string {
	for _, u := range units {
		if n := int64(s); n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0B"
}

// MarshalText returns the size with its unit.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
