package settings

import (
	"strings"
	"testing"
)

// fuzzReader reads texts of one format. Whatever they are, the reader returns,
// within its bounds, nodes and faults that have a line of the text.
func fuzzReader(f *testing.F, read func([]byte) (node, []fault), seeds ...string) {
	f.Helper()
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		last := 1 + strings.Count(text, "\n")
		root, faults := read([]byte(text))
		for _, fault := range faults {
			if fault.line < 1 || fault.line > last || fault.text == "" {
				t.Errorf("%q: the fault %+v", text, fault)
			}
		}
		count := 0
		var check func(n node, depth int)
		check = func(n node, depth int) {
			if count++; depth > maxDepth || count > maxNodes {
				t.Fatalf("%q: %d values, %d deep", text, count, depth)
			}
			if n.line > last || n.line < 0 {
				t.Errorf("%q: a value in line %d", text, n.line)
			}
			seen := map[string]bool{}
			for _, p := range n.parts {
				if seen[p.key] {
					t.Errorf("%q: the key %q twice", text, p.key)
				}
				seen[p.key] = true
				check(p.value, depth+1)
			}
			for _, item := range n.items {
				check(item, depth+1)
			}
		}
		check(root, 1)
	})
}

func FuzzYAML(f *testing.F) {
	fuzzReader(f, readYAML, "a: {b: [1, x, ~, true]}\n", "a: &a\n  <<: *a\n", "x: &x {y: 1}\nz: {<<: [*x, {w: 2}], y: 3}\n", "a: 1\n---\nb: 2\n", "a: [1,\nb: 2\n", "? [a]\n: b\n",
		"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "%YAML 1.1\n---\n!!map {a: !x 2024-01-01}\n", "a: |\n  b\n\tc\n", "a: *b\n", "a: 1\na: 2\n")
}

func FuzzTOML(f *testing.F) {
	fuzzReader(f, readTOML, "a = 1\n[b.c]\nd.e = 'x'\n", "[[a]]\nb = 1\n[[a]]\n[a.c]\nd = 2\n", "a.\"b\\u0041\" = {x = [{y = 1}], z.w = 2}\n", "a = 2024-01-01T00:00:00Z\nb = 07:30:00\nc = inf\n",
		"a = 1\na = 2\n", "a = {\n}\n", "a = \"\"\"\nx\n\"\"\"\nb = 0x1F\n", "[a]\r\nb = 1_000\r\n")
}

func FuzzJSON(f *testing.F) {
	fuzzReader(f, readJSON, `{"a": [[[null]], {"b": {}}], "c": "\ud800", "d": 1e400, "e": -0}`, "{\n\"a\": 1,\n\"a\": {\"a\": 2}}", "[[[[", "{} x", "", "\"a\"", `{"a": 1,}`)
}

func FuzzDotEnv(f *testing.F) {
	read := func(data []byte) (node, []fault) {
		all, faults := readDotEnv(string(data))
		root := node{kind: listKind, line: 1}
		for _, a := range all {
			root.items = append(root.items, node{text: a.text, line: a.line})
		}
		return root, faults
	}
	fuzzReader(f, read, "export A='a\nb' # c\nX=\"\\\"\n", "A=5\r\nB=\"\\n\\$\"\n=\n'=\n", "A=\"x\nB=\"y\n", "A = b # c\n#\n\n export\tB=c")
}
