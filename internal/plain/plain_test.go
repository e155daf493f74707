package plain_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/megaframework/mega/internal/plain"
)

func TestUnprintableTextIsEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "",
		"order:1 한글 �\n\tx":    "order:1 한글 �\n\tx",
		"\x1b[2Jx":             `\u001b[2Jx`,
		"\x1b]0;title\a":       `\u001b]0;title\u0007`,
		"a\u009b31mb":          `a\u009b31mb`,
		"a\u202eb\u2066\ufeff": `a\u202eb\u2066\ufeff`,
		"a\xffb\r":             `a\xffb\u000d`,
		"a\U000e0041":          `a\ue0041`,
	} {
		if got := plain.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	if got := plain.Line("a\n\tb\x00"); got != `a\n\tb\u0000` {
		t.Errorf("Line: %q", got)
	}
}

func FuzzJSONKeepsItsValue(f *testing.F) {
	f.Add("a\u009b31m\U000e0041\u202e\x00\"\\")
	f.Fuzz(func(t *testing.T, s string) {
		document, err := json.Marshal(map[string]string{"label": s})
		if err != nil {
			t.Fatal(err)
		}
		var before, after map[string]string
		shown := plain.JSON(string(document))
		if err := json.Unmarshal(document, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(shown), &after); err != nil || before["label"] != after["label"] {
			t.Errorf("%q became %q: %v", document, shown, err)
		}
		if strings.ContainsFunc(shown, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }) {
			t.Errorf("%q has a character that does not print", shown)
		}
	})
}
