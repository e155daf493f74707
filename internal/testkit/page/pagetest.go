// Package pagetest reads the pages of the guide for the tests that do what a
// page shows: the commands in its blocks, and what came of them.
package pagetest

import (
	"regexp"
	"slices"
	"strings"
)

// Block is a fenced block of a page.
type Block struct{ Language, Text string }

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// Blocks returns the fenced blocks of a page that are in one of languages, in
// the page's order.
func Blocks(page string, languages ...string) (found []Block) {
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if slices.Contains(languages, m[1]) {
			found = append(found, Block{m[1], m[2]})
		}
	}
	return found
}

// Exchange is a line that was typed behind "$ ", and the answer below it.
type Exchange struct{ Typed, Answer string }

// Exchanges returns what was typed in a block of language console.
func Exchanges(block string) (all []Exchange) {
	for line := range strings.Lines(block) {
		if typed, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, Exchange{Typed: strings.TrimSpace(typed)})
			continue
		}
		if len(all) > 0 {
			all[len(all)-1].Answer += line
		}
	}
	return all
}

// varying matches text that differs from one run to the next.
var varying = regexp.MustCompile(`\d+(\.\d+)?(ns|µs|ms|s)\b|\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)|\d\d:\d\d:\d\d|\b\d{12,}\b|"(left|took)": ?\d+|pid[ =]\d+|go1[.\d]+|\b[a-z2-7]{16}\b`)

// elided is a line that stands for any number of lines of an answer.
const elided = "…\n"

// Same reports whether got is the answer that a page shows, apart from what
// differs from one run to the next, the space between words, and the lines for
// which the page has a … alone.
func Same(shown, got string) bool {
	var b strings.Builder
	for line := range strings.Lines(Plain(shown)) {
		if line == elided {
			b.WriteString(`(.*\n)*?`)
			continue
		}
		b.WriteString(regexp.QuoteMeta(line))
	}
	return regexp.MustCompile(`^` + b.String() + `$`).MatchString(Plain(got))
}

// Plain is a text without what Same passes over. An empty line at its end is
// nothing.
func Plain(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(varying.ReplaceAllString(text, "~"), "\n")) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}
