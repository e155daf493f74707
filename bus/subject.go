package bus

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The bounds of a subject and of a pattern.
const (
	MaxSubject = 255 // bytes
	MaxTokens  = 32
	MaxGroup   = 64 // bytes of a group's name
)

// CheckSubject returns an error that wraps ErrBadSubject unless s is one that
// can be published and requested: 1 to 32 tokens of printable ASCII, joined by
// dots, in at most 255 bytes; no wildcards; not beginning with $ or _.
func CheckSubject(s string) error {
	if isLiteral(s) {
		return nil
	}
	return explain(s, false)
}

// CheckPattern returns an error that wraps ErrBadSubject unless s is a subject
// or one with wildcards: * for exactly one token, and > for one or more at the
// end.
func CheckPattern(s string) error {
	if isLiteral(s) {
		return nil
	}
	return explain(s, true)
}

// plain reports for each byte whether a token may contain it.
var plain = func() (t [256]bool) {
	for c := byte('!'); c <= '~'; c++ {
		t[c] = c != '.' && c != '*' && c != '>'
	}
	return t
}()

// isLiteral is the check that nearly every subject passes: one look at each
// byte.
func isLiteral(s string) bool { // S1
	if s == "" || len(s) > MaxSubject || s[0] == '$' || s[0] == '_' {
		return false
	}
	tokens, start := 1, 0
	for i := range len(s) {
		if plain[s[i]] {
			continue
		}
		if s[i] != '.' || i == start {
			return false
		}
		tokens, start = tokens+1, i+1
	}
	return start < len(s) && tokens <= MaxTokens
}

// explain returns the error of a bad subject or, if wild, of a bad pattern.
func explain(s string, wild bool) error {
	switch {
	case s == "":
		return badSubject(s, "it is empty")
	case len(s) > MaxSubject:
		return badSubject(s[:40]+"…", "it has %d bytes, at most %d are allowed", len(s), MaxSubject)
	case s[0] == '$' || s[0] == '_':
		return badSubject(s, "a first character %q is reserved", s[0])
	}
	tokens, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			continue
		}
		if err := explainToken(s, s[start:i], i == len(s), wild); err != nil {
			return err
		}
		tokens, start = tokens+1, i+1
	}
	if tokens > MaxTokens {
		return badSubject(s, "it has %d tokens, at most %d are allowed", tokens, MaxTokens)
	}
	return nil
}

func explainToken(s, token string, last, wild bool) error {
	switch {
	case token == "":
		return badSubject(s, "a token is empty")
	case (token == "*" || token == ">") && !wild:
		return badSubject(s, "wildcards are for subscriptions")
	case token == "*" || token == ">" && last:
		return nil
	case token == ">":
		return badSubject(s, "> stands for the rest and comes last")
	}
	for i := range len(token) {
		switch c := token[i]; {
		case c == '*' || c == '>':
			return badSubject(s, "%q stands for whole tokens", c)
		case !plain[c]:
			return badSubject(s, "%q is not printable ASCII, or is a space", characterAt(token, i))
		}
	}
	return nil
}

// characterAt returns the character that begins at byte i of s, or that byte if it
// begins none.
func characterAt(s string, i int) string {
	_, size := utf8.DecodeRuneInString(s[i:])
	return s[i : i+size]
}

func badSubject(s, format string, args ...any) error {
	return fmt.Errorf("%w %q: %s", ErrBadSubject, s, fmt.Sprintf(format, args...))
}

// checkGroup wants a name of printable ASCII without wildcards.
func checkGroup(name string) error {
	if len(name) > MaxGroup {
		return fmt.Errorf("%w: %.40q… has %d bytes, at most %d are allowed", ErrBadGroup, name, len(name), MaxGroup)
	}
	for i := range len(name) {
		if !plain[name[i]] && name[i] != '.' {
			return fmt.Errorf("%w %q: %q is not allowed in a name", ErrBadGroup, name, characterAt(name, i))
		}
	}
	return nil
}

// matches reports whether a valid pattern matches a valid subject (S2).
func matches(pattern, subject string) bool {
	for {
		p, ofPattern, morePattern := strings.Cut(pattern, ".")
		t, ofSubject, moreSubject := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != t:
			return false
		case !morePattern || !moreSubject:
			return morePattern == moreSubject
		}
		pattern, subject = ofPattern, ofSubject
	}
}
