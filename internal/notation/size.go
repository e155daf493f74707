package notation

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/megaframework/mega/internal/mask"
)

// SizePattern matches a size, except 0.
const SizePattern = `^(0|[1-9][0-9]*)(\.[0-9]+)?(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB)$`

var size = regexp.MustCompile(SizePattern)

// units are the units of SizePattern. The binary units come first, the largest
// first, because FormatSize uses the largest that fits.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3},
}

// NoUnit returns the error for a number that lacks its unit, with two units as
// the correction, where parse accepts them. The unit is never guessed:
// nanoseconds would almost always be wrong.
func NoUnit(text string, parse func(string) error, unit, other string) *Error {
	var legal []string
	for _, u := range []string{unit, other} {
		for _, number := range []string{text, decimal(text)} {
			if parse(number+u) == nil {
				legal = append(legal, number+u)
				break
			}
		}
	}
	e := &Error{Text: mask.Quote(text) + " has no unit", NoUnit: true}
	if len(legal) > 0 {
		e.Hint = "write " + strings.Join(legal, " or ")
	}
	return e
}

// decimal returns a number without an exponent.
func decimal(number string) string {
	n, _ := strconv.ParseFloat(number, 64) // the hint has to be legal in any case
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// maxDigits bounds the digits of a size. Any that is a whole number of bytes has
// fewer: 19 before the point, and 40 after it.
const maxDigits = 64

// ParseSize returns the number of bytes that text describes.
func ParseSize(text string) (int64, error) {
	if text == "0" {
		return 0, nil
	}
	if IsNumber(text) {
		return 0, NoUnit(text, func(s string) error { _, err := ParseSize(s); return err }, "B", "KiB")
	}
	m := size.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%s is not a size such as 512KiB or 1.5MiB", mask.Quote(text))
	}
	n, ok := new(big.Rat), false
	if number := m[1] + strings.TrimRight(m[2], ".0"); len(number) <= maxDigits {
		n, ok = n.SetString(number)
	}
	for _, u := range units {
		if ok && u.name == m[3] {
			n.Mul(n, new(big.Rat).SetInt64(u.bytes))
		}
	}
	if !ok || !n.IsInt() || !n.Num().IsInt64() {
		return 0, fmt.Errorf("%s is not a whole number of bytes below 8EiB", mask.Quote(text))
	}
	return n.Num().Int64(), nil
}

// FormatSize returns n with the largest unit that gives a whole number.
func FormatSize(n int64) string {
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0B"
}
