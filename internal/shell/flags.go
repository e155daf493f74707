package shell

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/megaframework/mega/internal/spelling"
)

// filled is the value of a flag whose empty text is a mistake, such as the text
// of a variable that is not set. It would silently select something else.
type filled struct{ pflag.Value }

// Filled returns a value that refuses an empty text.
func Filled(v pflag.Value) pflag.Value { return filled{v} }

// Set sets the value.
func (f filled) Set(text string) error {
	if text == "" {
		return errors.New("it is empty; give a value, or leave the flag out")
	}
	return f.Value.Set(text)
}

// text is the value of a flag that refuses an empty text.
type text string

// Text returns the value of a flag that sets of and refuses an empty text.
func Text(of *string) pflag.Value { return Filled((*text)(of)) }

// Set sets the text.
func (t *text) Set(s string) error {
	*t = text(s)
	return nil
}

// String returns the text.
func (t *text) String() string { return string(*t) }

// Type returns the name of the value in the help.
func (*text) Type() string { return "string" }

// WrongFlag returns the usage error for flags that were not parsed. line is the
// verb as it was typed.
func WrongFlag(line string, f *pflag.FlagSet, err error) *Error {
	e := &Error{Code: "cli.wrong_flag", Exit: ExitUsage, Text: Sentence(err.Error())}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		name := unknown.GetSpecifiedName()
		var names []string
		f.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		e.Code, e.Text = "cli.unknown_flag", fmt.Sprintf("%s has no flag --%s.", line, name)
		if best := spelling.Nearest(strings.ToLower(name), names); best != "" {
			e.Actions = []string{"did you mean: --" + best}
		}
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := wanted(wrong); want != "" {
			e.Text = fmt.Sprintf("Invalid argument %q for %q flag: %s.", wrong.GetValue(), "--"+wrong.GetFlag().Name, want)
		}
	}
	return e
}

// wanted returns the form of a flag, in place of an error of the packages time and
// strconv, or "".
func wanted(wrong *pflag.InvalidValueError) string {
	kind, syntax := wrong.GetFlag().Value.Type(), errors.Is(wrong, strconv.ErrSyntax)
	switch {
	case kind == "duration":
		return "it must be a time such as 500ms, 10s or 1m30s"
	case errors.Is(wrong, strconv.ErrRange):
		return "the number is too large"
	case syntax && kind == "int":
		return "it must be a whole number"
	case syntax && kind == "uint64":
		return "it must be a whole number from 0 on"
	case syntax && kind == "bool":
		return "it must be true or false"
	}
	return ""
}

// Sentence returns s as a sentence.
func Sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }
