package yamldoc_test

import (
	"errors"
	"testing"

	"github.com/megaframework/mega/internal/yamldoc"
)

func TestDocumentsWithoutContentDoNotCount(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "# nothing\n": "", "---\n": "", "---\n# nothing\n---\n": "",
		"a": "a", "a\n---\n": "a", "a\n---\n# end\n": "a", "---\n---\na\n": "a", "---\na\n...\n---\n---": "a", "~": "~",
	} {
		doc, err := yamldoc.Read([]byte(text))
		got := ""
		if doc != nil {
			got = doc.Content[0].Value
		}
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestSecondDocumentIsAnErrorWithItsLine(t *testing.T) {
	for text, line := range map[string]int{"a\n---\nb\n": 2, "---\n---\na\n---\nnull\n": 4, "a\n---\n---\n{}\n": 3} {
		_, err := yamldoc.Read([]byte(text))
		if second, ok := errors.AsType[*yamldoc.SecondError](err); !ok || second.Line != line {
			t.Errorf("%q: got %v, want a second document in line %d", text, err, line)
		}
	}
	if _, err := yamldoc.Read([]byte("a\n---\n[")); err == nil {
		t.Error("the second document is not YAML: got no error")
	}
}
