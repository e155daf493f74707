package settings

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
)

// excerpt is the line of a syntax error.
type excerpt struct {
	line   string
	column int // in bytes, from 1; 0 without an excerpt
}

// Bounds on the width of an excerpt, in letters.
const (
	widthBefore = 60
	widthAfter  = 20
)

var (
	tableLine  = regexp.MustCompile(`^(\s*\[[A-Za-z0-9_.\s-]*\]*)([^=]*)$`)
	assignLine = regexp.MustCompile(`^(\s*(?:[A-Za-z0-9_-]+\.)*([A-Za-z0-9_-]+)\s*=\s*)(.*)$`)
)

// render returns the line with a caret below the error. A value is
// masked unless its key certainly holds no secret. The line is not parsed, so only
// the last word of its key is known.
func (sc *schema) render(e excerpt) string {
	if e.column == 0 {
		return ""
	}
	column := min(max(e.column-1, 0), len(e.line))
	before, after := []rune(e.line[:column]), []rune(e.line[column:])
	line := sc.maskLine(e.line)
	shown, caret := []rune(line), len(before)
	if line != e.line { // the mask ends at the error, so that it does not show the length of a value
		shown = append(shown[:min(caret, len(shown))], []rune("•")[:min(1, len(after))]...)
	}
	if cut := caret - widthBefore; cut > 0 {
		shown, caret = append([]rune("…"), shown[cut:]...), caret-cut+1
	}
	if most := caret + widthAfter; len(shown) > most {
		shown = append(shown[:most:most], '…')
	}
	return strings.ReplaceAll(string(shown), "\t", " ") + "\n" + strings.Repeat(" ", caret) + "^"
}

// maskLine masks the value of a line, letter by letter.
func (sc *schema) maskLine(line string) string {
	if m := tableLine.FindStringSubmatch(line); m != nil {
		return m[1] + maskLetters(m[2])
	}
	m := assignLine.FindStringSubmatch(line)
	if m == nil {
		return maskLetters(line)
	}
	if strings.Contains(m[3], "=") || !sc.neverSecret(m[2]) || mask.Text(m[3]) != m[3] {
		return m[1] + maskLetters(m[3])
	}
	return line
}

// maskLetters replaces all letters but blanks and tabs.
func maskLetters(value string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '\t' {
			return r
		}
		return '•'
	}, value)
}

// neverSecret reports whether there are keys with this last word, and none of them
// may hold a secret.
func (sc *schema) neverSecret(word string) bool {
	named := slices.DeleteFunc(slices.Clone(sc.fields), func(f field) bool { return f.Path[len(f.Path)-1] != word })
	return len(named) > 0 && !slices.ContainsFunc(named, func(f field) bool {
		return f.Type == reflect.TypeFor[config.Secret]() || f.Type == reflect.TypeFor[config.URL]()
	})
}
