package bus_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/megaframework/mega/bus"
)

func TestBadSubjectsAndPatternsAreRefused(t *testing.T) {
	longest := strings.Repeat("a", bus.MaxSubject)
	deepest := strings.Repeat("a.", bus.MaxTokens-1) + "a"
	for _, s := range []string{"a", "a.b", "Orders.EU.created", "a-b_c.$d._e", "!~", "a/b:c@d", "0", longest, deepest} {
		if err := bus.CheckSubject(s); err != nil {
			t.Errorf("subject %q: %v", s, err)
		}
		if err := bus.CheckPattern(s); err != nil {
			t.Errorf("pattern %q: %v", s, err)
		}
	}
	for _, p := range []string{"*", ">", "a.*", "*.b", "a.*.c", "a.>", "*.*.>", longest[2:] + ".*", strings.Repeat("*.", bus.MaxTokens-1) + ">"} {
		if err := bus.CheckSubject(p); !errors.Is(err, bus.ErrBadSubject) {
			t.Errorf("subject %q: %v", p, err)
		}
		if err := bus.CheckPattern(p); err != nil {
			t.Errorf("pattern %q: %v", p, err)
		}
	}
	for s, why := range map[string]string{
		"":                       "empty",
		".":                      "token is empty",
		".a":                     "token is empty",
		"a.":                     "token is empty",
		"a..b":                   "token is empty",
		"a b":                    "space",
		"a\tb":                   "printable",
		"a\r\nPUB":               "printable",
		"a\x00":                  "printable",
		"ä":                      "printable",
		"a\x7f":                  "printable",
		"foo*":                   "whole tokens",
		"a.>b":                   "whole tokens",
		"a.>.b":                  "comes last",
		"$SYS.a":                 "reserved",
		"_INBOX.a":               "reserved",
		longest + "a":            "255",
		deepest + ".a":           "32",
		"a.\xff":                 "printable",
		"a.**":                   "whole tokens",
		"a.>>":                   "whole tokens",
		strings.Repeat(".", 300): "255",
	} {
		for _, err := range []error{bus.CheckSubject(s), bus.CheckPattern(s)} {
			if !errors.Is(err, bus.ErrBadSubject) {
				t.Errorf("%q: got %v, want ErrBadSubject", s, err)
			}
		}
		if err := bus.CheckPattern(s); err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %q does not say %q", s, err, why)
		}
	}
}

// The grammar once more, as an expression.
var (
	subjectGrammar = regexp.MustCompile(`^[!-~]+$`)
	tokenGrammar   = regexp.MustCompile(`^[!-)+-\-/-=?-~]+$`)
)

func legal(s string, wild bool) bool {
	if len(s) > 255 || !subjectGrammar.MatchString(s) || strings.ContainsAny(s[:1], "$_") {
		return false
	}
	tokens := strings.Split(s, ".")
	for i, token := range tokens {
		wildcard := token == "*" || token == ">" && i == len(tokens)-1
		if !tokenGrammar.MatchString(token) && (!wild || !wildcard) {
			return false
		}
	}
	return len(tokens) <= 32
}

func FuzzSubject(f *testing.F) {
	for _, s := range []string{"a.b", "a.*", "a.>", "", "a..b", "$a", "a b", "*.>", strings.Repeat("a.", 32)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if err := bus.CheckSubject(s); (err == nil) != legal(s, false) || err != nil && !errors.Is(err, bus.ErrBadSubject) {
			t.Errorf("subject %q: %v", s, err)
		}
		if err := bus.CheckPattern(s); (err == nil) != legal(s, true) || err != nil && !errors.Is(err, bus.ErrBadSubject) {
			t.Errorf("pattern %q: %v", s, err)
		}
	})
}

func TestARefusalNamesTheCharacterOfTheCaller(t *testing.T) {
	b := newBus(t, bus.Config{})
	for c, want := range map[string]string{"주": `"주"`, "é": `"é"`, " ": `" "`, "\xff": `"\xff"`, "\xec": `"\xec"`} {
		_, group := b.Subscribe(t.Context(), "a", func(context.Context, *bus.Msg) error { return nil }, bus.Group("a"+c))
		for what, err := range map[string]error{
			"subject": b.Publish(t.Context(), "a."+c, nil),
			"group":   group,
			"header":  b.Publish(t.Context(), "a", nil, bus.Header("a"+c, "v")),
		} {
			if err == nil || !strings.Contains(err.Error(), ": "+want+" is not ") {
				t.Errorf("%s with %q: %v", what, c, err)
			}
		}
	}
}
