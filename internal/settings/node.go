package settings

import (
	"bytes"
	"fmt"
	"regexp"
	"sort"
	"strings"

	"github.com/megaframework/mega/internal/mask"
)

// node is a value of a file, in any format.
type node struct {
	kind  kind
	text  string // of a scalar
	line  int
	parts []part // of a section, in the order of the file
	items []node // of a list
}

// part is a key of a section with its value.
type part struct {
	key   string
	line  int
	value node
}

// kind is the type of a value in a file.
type kind string

const (
	sectionKind kind = "a section of keys"
	listKind    kind = "a list"
	textKind    kind = "text"
	numberKind  kind = "a number"
	boolKind    kind = "true or false"
	dateKind    kind = "a date"
	nullKind    kind = "nothing"
)

// fault is a syntax error of a file, found before its keys are interpreted.
type fault struct {
	code    string
	line    int
	text    string
	hint    string
	excerpt excerpt
}

// Bounds on the contents of a file. No configuration comes near them; a file
// that is made to exhaust a reader exceeds them.
const (
	maxFile   = 1 << 20
	maxNodes  = 50_000
	maxDepth  = 32
	maxFaults = 50
)

// builder builds nodes from a parser's output, within bounds.
type builder struct {
	nodes, depth int
	full         bool // a bound was reached; the rest is cut short
	faults       []fault
}

// enter counts a node and reports whether one more is allowed. The caller calls
// leave in either case.
func (b *builder) enter(line int) bool {
	b.nodes++
	b.depth++
	switch {
	case b.full:
	case b.nodes > maxNodes:
		b.full = true
		b.fault("config.file", line, fmt.Sprintf("holds more than %d values", maxNodes), "")
	case b.depth > maxDepth:
		b.full = true
		b.fault("config.file", line, fmt.Sprintf("nests deeper than %d levels", maxDepth), "")
	}
	return !b.full
}

// done returns the result of a reader: no node of a file that reached a bound.
func (b *builder) done(root node) (node, []fault) {
	if b.full {
		return node{kind: sectionKind}, b.faults
	}
	return root, b.faults
}

func (b *builder) leave() { b.depth-- }

func (b *builder) fault(code string, line int, text, hint string) {
	if len(b.faults) < maxFaults {
		b.faults = append(b.faults, fault{code: code, line: line, text: text, hint: hint})
	}
}

// section builds a section from parts, in which each key may occur once.
func (b *builder) section(line int, parts []part) node {
	n := node{kind: sectionKind, line: line}
	first := map[string]int{}
	for _, p := range parts {
		if at, twice := first[p.key]; twice {
			b.fault("config.duplicate_key", p.line, fmt.Sprintf("the key %s exists twice, first in line %d", mask.Quote(p.key), at), "remove one of them")
			continue
		}
		first[p.key] = p.line
		n.parts = append(n.parts, p)
	}
	return n
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// syntaxText returns a parser's message without the text that it quotes from the
// file, which may be a secret.
func syntaxText(format, problem string) string {
	return "is not " + format + ": " + quoted.ReplaceAllString(problem, `"…"`)
}

// lines has the offset of each line of a text.
type lines []int // the offset at which each line begins

func newLines(data []byte) lines {
	l := lines{0}
	for at := 0; ; {
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 {
			return l
		}
		at += i + 1
		l = append(l, at)
	}
}

// text returns a line without its end.
func (l lines) text(data []byte, line int) string {
	end := len(data)
	if line < len(l) {
		end = l[line]
	}
	return strings.TrimRight(string(data[l[line-1]:end]), "\r\n")
}

// lineOf returns the number, from 1, of the line with an offset.
func (l lines) lineOf(offset int) int {
	return sort.Search(len(l), func(i int) bool { return l[i] > offset })
}
