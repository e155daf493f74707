package settings

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
)

// ecma returns a regular expression of Go in the dialect of JSON Schema,
// ECMA-262 with the flag u. Except for (?m), Go reads the result, too. It
// returns "" if pattern is not a regular expression.
func ecma(pattern string) string {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return ""
	}
	var b strings.Builder
	writeECMA(&b, re)
	return b.String()
}

func writeECMA(b *strings.Builder, re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			writeLetter(b, r, re.Flags&syntax.FoldCase != 0)
		}
	case syntax.OpCharClass:
		writeClass(b, re.Rune)
	case syntax.OpAnyChar:
		b.WriteString(`[\s\S]`)
	case syntax.OpAnyCharNotNL:
		b.WriteString(`[^\n]`) // the dot of ECMA-262 excludes more
	case syntax.OpBeginLine:
		b.WriteString(`(?:^|(?<=\n))`)
	case syntax.OpEndLine:
		b.WriteString(`(?:$|(?=\n))`)
	case syntax.OpBeginText:
		b.WriteString(`^`)
	case syntax.OpEndText:
		b.WriteString(`$`)
	case syntax.OpWordBoundary:
		b.WriteString(`\b`)
	case syntax.OpNoWordBoundary:
		b.WriteString(`\B`)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if sub.Op == syntax.OpAlternate {
				writeGroup(b, sub)
				continue
			}
			writeECMA(b, sub)
		}
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			if i > 0 {
				b.WriteByte('|')
			}
			writeECMA(b, sub)
		}
	case syntax.OpCapture:
		writeGroup(b, re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		writeRepeated(b, re)
	}
}

func writeGroup(b *strings.Builder, re *syntax.Regexp) {
	b.WriteString("(?:")
	writeECMA(b, re)
	b.WriteByte(')')
}

// writeRepeated writes a lazy repetition as a greedy one, which matches the same
// texts.
func writeRepeated(b *strings.Builder, re *syntax.Regexp) {
	switch sub := re.Sub[0]; {
	case sub.Op == syntax.OpCharClass, sub.Op == syntax.OpAnyChar, sub.Op == syntax.OpAnyCharNotNL, sub.Op == syntax.OpCapture,
		sub.Op == syntax.OpLiteral && len(sub.Rune) == 1:
		writeECMA(b, sub)
	default:
		writeGroup(b, sub)
	}
	switch {
	case re.Op == syntax.OpStar:
		b.WriteByte('*')
	case re.Op == syntax.OpPlus:
		b.WriteByte('+')
	case re.Op == syntax.OpQuest:
		b.WriteByte('?')
	case re.Max == re.Min:
		fmt.Fprintf(b, "{%d}", re.Min)
	case re.Max < 0:
		fmt.Fprintf(b, "{%d,}", re.Min)
	default:
		fmt.Fprintf(b, "{%d,%d}", re.Min, re.Max)
	}
}

// writeLetter writes a letter of a literal, or all its cases.
func writeLetter(b *strings.Builder, r rune, fold bool) {
	if other := unicode.SimpleFold(r); !fold || other == r {
		writeRune(b, r, `\^$.*+?()[]{}|`)
		return
	}
	var cases []rune
	for c := unicode.SimpleFold(r); ; c = unicode.SimpleFold(c) {
		cases = append(cases, c, c)
		if c == r {
			break
		}
	}
	writeClass(b, cases)
}

// writeClass writes a class of ranges, which are pairs of their first and last letter.
// If the last range ends with the last letter of Unicode, it writes the negated class
// of the gaps.
func writeClass(b *strings.Builder, ranges []rune) {
	n := len(ranges)
	if n == 0 { // no letter is in the class
		b.WriteString(`[^\s\S]`)
		return
	}
	b.WriteByte('[')
	if ranges[n-1] == unicode.MaxRune {
		var gaps []rune
		next := rune(0)
		for i := 0; i < n; i += 2 {
			if ranges[i] > next {
				gaps = append(gaps, next, ranges[i]-1)
			}
			next = ranges[i+1] + 1
		}
		if ranges = gaps; len(ranges) == 0 {
			b.WriteString(`\s\S]`)
			return
		}
		b.WriteByte('^')
	}
	for i := 0; i < len(ranges); i += 2 {
		first, last := ranges[i], ranges[i+1]
		writeRune(b, first, `\^[]-`)
		if last > first {
			if last > first+1 {
				b.WriteByte('-')
			}
			writeRune(b, last, `\^[]-`)
		}
	}
	b.WriteByte(']')
}

// writeRune writes a letter, escaped if it is special or does not print.
func writeRune(b *strings.Builder, r rune, special string) {
	switch {
	case strings.ContainsRune(special, r):
		b.WriteByte('\\')
		b.WriteRune(r)
	case r < ' ' || r > '~' && r <= 0xa0:
		fmt.Fprintf(b, `\x%02x`, r)
	default:
		b.WriteRune(r)
	}
}
