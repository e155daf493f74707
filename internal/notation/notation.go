// Package notation checks how the values of configuration keys are written: sizes,
// URLs and addresses. Package config has the types of these values, and
// internal/settings loads them.
package notation

import "regexp"

// Error is the error for a text that is not a value of its type.
type Error struct {
	Text   string
	Hint   string // the correction, if known
	NoUnit bool   // a number has no unit
}

// Error returns the text without the hint.
func (e *Error) Error() string { return e.Text }

var number = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$`)

// IsNumber reports whether text is a number without a unit.
func IsNumber(text string) bool { return number.MatchString(text) }
