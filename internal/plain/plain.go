// Package plain makes text safe to show on a terminal. Keys, labels, subjects and
// errors are written by other processes and servers; a terminal would obey the
// control characters in them, and format characters reorder what is read.
package plain

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s with every character escaped that does not print, except line
// feeds and tabs: a control or format character as \u202e, a byte that is not
// UTF-8 as \xff. It returns s itself if there is none.
func Text(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !shown(r) || r == utf8.RuneError }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case shown(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// spaces is made once, because it has kilobytes, and a log escapes each message.
var spaces = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// Line returns Text(s) on one line, with line feeds and tabs escaped.
func Line(s string) string { return spaces.Replace(Text(s)) }

// JSON returns a JSON document with every character escaped that does not print.
// Its value stays the same: outside strings, JSON has none.
func JSON(document string) string {
	if strings.IndexFunc(document, func(r rune) bool { return !shown(r) }) < 0 {
		return document
	}
	var b strings.Builder
	for _, r := range document {
		switch first, second := utf16.EncodeRune(r); {
		case shown(r):
			b.WriteRune(r)
		case first != utf8.RuneError:
			fmt.Fprintf(&b, `\u%04x\u%04x`, first, second)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Document returns v as an indented JSON document, in the form of JSON.
func Document(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return JSON(b.String()), err
}

func shown(r rune) bool { return r == '\n' || r == '\t' || unicode.IsPrint(r) }
