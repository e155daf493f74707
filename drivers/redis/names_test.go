package redis

import (
	"slices"
	"strings"
	"testing"
)

var oddKeys = []string{
	"{}", "a}{b", "}", "}x", "{", "{x", ":", "*", "?", "[a]", `\`, "%", "%7B", "%7b", "%25", "%257B", "a", "A", "a:order", "a:state", "a:clock",
	"order", ":order", "a}:order", "{a}:order", "{a}", "0", "1:clock", "mega:{a}", "käse", "日本",
	strings.Repeat("x", 512), strings.Repeat("}", 512),
}

func mustTemplate(t testing.TB, s string) template {
	t.Helper()
	tmpl, err := newTemplate(s, "")
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestNoTwoKeysShareAName(t *testing.T) {
	for _, s := range []string{DefaultKey, "%s", "lock:%s", "%s:lock", "x{a%sb}y", "{%s}:order", "{%s}:clock"} {
		tmpl := mustTemplate(t, s)
		owner := map[string]string{}
		for _, key := range oddKeys {
			n := tmpl.names(tmpl.holder(key))
			for _, name := range n {
				if other, taken := owner[name]; taken {
					t.Errorf("template %q: %q and %q share the name %q", s, key, other, name)
				}
				owner[name] = key
			}
		}
	}
}

func TestEachNameDecodesToItsKey(t *testing.T) {
	for _, s := range []string{DefaultKey, "%s", "lock:%s", "%s:lock", "x{a%sb}y", "{%s}:order", "{%s}:clock"} {
		tmpl := mustTemplate(t, s)
		for _, key := range oddKeys {
			for _, name := range tmpl.names(tmpl.holder(key)) {
				if got, ok := tmpl.key(name); !ok || got != key {
					t.Errorf("template %q: the name %q is of %q, got %q, %v", s, name, key, got, ok)
				}
			}
		}
	}
}

func TestAllNamesOfATaggedKeyHaveItsTag(t *testing.T) {
	tag := func(name string) string {
		_, rest, _ := strings.Cut(name, "{")
		tag, _, _ := strings.Cut(rest, "}")
		return tag
	}
	tmpl := mustTemplate(t, DefaultKey)
	for _, key := range oddKeys {
		n := tmpl.names(tmpl.holder(key))
		for _, name := range n {
			if tag(name) == "" || tag(name) != tag(n[0]) {
				t.Errorf("the tag of %q is %q, want %q", name, tag(name), tag(n[0]))
			}
		}
	}
}

func TestPlainTemplateMeetsTheNamesOfOthers(t *testing.T) {
	tmpl := mustTemplate(t, "%s")
	for _, key := range oddKeys {
		if got := tmpl.holder(key); got != key {
			t.Errorf("holder of %q is %q", key, got)
		}
	}
}

func TestTemplatesThatCannotWorkAreRefused(t *testing.T) {
	for _, s := range []string{"", "mega", "%s%s", "a b%s", "{%s", "%s}", "}%s{", "{}%s", "{a}%s", "{{%s}}", "{%s}{b}", "\t%s"} {
		if tmpl, err := newTemplate(s, ""); err == nil {
			t.Errorf("template %q was taken: %+v", s, tmpl)
		}
	}
}

func TestForeignNamesAreNoLocks(t *testing.T) {
	tagged, plain := mustTemplate(t, DefaultKey), mustTemplate(t, "%s")
	for _, name := range []string{"", "mega:", "mega:{}", "mega:{a", "other:{a}", "mega:{%7b}", "mega:{%}", "mega:{%2", "mega:{a}:clock", "mega:{}:clock", "mega:{a}:fence", "mega:{a}b}", "mega:{{}"} {
		if key, ok := tagged.key(name); ok {
			t.Errorf("%q was taken for the lock %q", name, key)
		}
	}
	for _, name := range []string{"", "a b", "a clock", " clock", " order"} {
		if key, ok := plain.key(name); ok {
			t.Errorf("%q was taken for the lock %q", name, key)
		}
	}
}

func FuzzNameSaysItsKey(f *testing.F) {
	for _, key := range oddKeys {
		f.Add(key)
	}
	tmpl := mustTemplate(f, DefaultKey)
	f.Fuzz(func(t *testing.T, s string) {
		if key, ok := tmpl.key(s); ok && !slices.Contains(tmpl.names(tmpl.holder(key)), s) {
			t.Errorf("%q is no name of %q", s, key)
		}
		if s == "" {
			return
		}
		for _, name := range tmpl.names(tmpl.holder(s)) {
			if got, ok := tmpl.key(name); !ok || got != s {
				t.Errorf("the name %q is of %q, got %q, %v", name, s, got, ok)
			}
		}
	})
}
