package settings

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/notation"
)

// Problem is one mistake in a configuration.
type Problem struct {
	Code   string // "config.unknown_key"
	Key    string // "lock.ttl"; empty if no key is involved
	Origin Origin // what set it
	Text   string
	Hint   string // the correction, if known
	// Excerpt is the line of a syntax error, and below it a caret at the place of
	// the error. It is empty if that place is unknown. Values that may be secrets
	// are masked.
	Excerpt string
}

// subject returns the key, variable or argument as the user wrote it.
func (p Problem) subject() string {
	switch p.Origin.Layer {
	case LayerFile:
		return strings.TrimSuffix(p.Origin.place()+": "+p.Key, ": ")
	case LayerDotEnv:
		return strings.TrimSuffix(p.Origin.place()+": "+p.Origin.Name, ": ")
	case LayerProvider:
		return strings.TrimSuffix(p.Origin.Name+": "+p.Key, ": ")
	case LayerDefault:
		return p.Key
	case LayerSet:
		return p.Origin.String()
	}
	return cmp.Or(p.Origin.Name, p.Key)
}

// String returns one line: mega.config.yaml:8: lock.wait: "5" has no unit (write
// 5s or 5ms). The excerpt follows on two lines of its own.
func (p Problem) String() string {
	s := p.subject() + ": " + p.Text
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	if p.Excerpt != "" {
		s += "\n  " + strings.ReplaceAll(p.Excerpt, "\n", "\n  ")
	}
	return s
}

// Problems is the list of all mistakes in a configuration.
type Problems []Problem

// Error returns the problems, one on each line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// Code returns the code of the first problem.
func (p Problems) Code() string { return p[0].Code }

// keys returns the keys with a problem.
func (p Problems) keys() map[string]bool {
	all := map[string]bool{}
	for _, problem := range p {
		all[problem.Key] = problem.Key != ""
	}
	return all
}

// unread reports whether a file or a source was not read, or only in part: the keys that
// it sets seem to be missing.
func (p Problems) unread() bool {
	return slices.ContainsFunc(p, func(p Problem) bool {
		switch p.Code {
		case "config.file", "config.no_file", "config.provider":
			return true
		}
		return p.Code == "config.syntax" && p.Origin.File != ""
	})
}

func (p Problems) sort() {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(a.Origin.compare(b.Origin), strings.Compare(a.Key, b.Key))
	})
}

// invalid returns the problem for a value that its key does not accept.
func invalid(key string, o Origin, err error) Problem {
	p := Problem{Code: "config.invalid", Key: key, Origin: o, Text: err.Error()}
	if wrong, ok := errors.AsType[*notation.Error](err); ok {
		p.Hint = wrong.Hint
		if wrong.NoUnit {
			p.Code = "config.no_unit"
		}
	}
	return p
}
