package bus

import "testing"

func TestPatternMatchesItsSubjectsAlone(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "a.b", false}, {"a.b", "a", false}, {"a.b", "a.b", true},
		{"*", "a", true}, {"*", "a.b", false}, {"a.*", "a", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false}, {"*.b", "a.b", true}, {"*.b", "a.c", false},
		{">", "a", true}, {">", "a.b.c", true}, {"a.>", "a", false}, {"a.>", "a.b", true}, {"a.>", "a.b.c", true}, {"a.>", "b.c", false},
		{"a.*.>", "a.b", false}, {"a.*.>", "a.b.c", true}, {"a.*.c", "a.b.c", true}, {"a.*.c", "a.b.d", false},
	} {
		if got := matches(c.pattern, c.subject); got != c.want {
			t.Errorf("matches(%q, %q) is %v", c.pattern, c.subject, got)
		}
	}
}
