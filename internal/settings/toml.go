package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// readTOML parses a file: the values with the decoder, which implements all
// rules of the language, and the lines of the keys with the parser, which
// records them.
func readTOML(data []byte) (node, []fault) {
	var values map[string]any
	if err := toml.Unmarshal(data, &values); err != nil {
		f := fault{code: "config.syntax", line: 1, text: syntaxText("TOML", strings.TrimPrefix(err.Error(), "toml: "))}
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			var column int
			f.line, column = at.Position()
			f.excerpt = excerpt{newLines(data).text(data, f.line), column}
		}
		return node{kind: sectionKind}, []fault{f}
	}
	t := tomlBuilder{at: tomlLines(data)}
	return t.done(t.node(values, "", 1))
}

// tomlLines returns the line of each key and of each item of a list. Each part
// of a key follows a NUL, and the index of an item follows a byte 1.
func tomlLines(data []byte) map[string]int {
	at, found := newLines(data), map[string]int{}
	var p unstable.Parser
	p.Reset(data)
	tables := map[string]int{} // the number of tables in each array
	for table := ""; p.NextExpression(); {
		e := p.Expression()
		path := noteKey(e, table, at, found)
		if e.Kind == unstable.ArrayTable {
			array, key := path, e.Key()
			path = item(array, tables[array])
			tables[array]++
			key.Next()
			found[path] = at.lineOf(int(key.Node().Raw.Offset))
		}
		if e.Kind == unstable.Table || e.Kind == unstable.ArrayTable {
			table = path
			continue
		}
		noteInline(e.Value(), path, at, found, 0)
	}
	return found
}

// noteKey records the lines of a dotted key below path, and returns the whole
// key.
func noteKey(e *unstable.Node, path string, at lines, found map[string]int) string {
	if e.Kind != unstable.KeyValue {
		path = "" // tables are named from the root
	}
	parts := 0
	for key := e.Key(); key.Next() && parts <= maxDepth; parts++ {
		n := key.Node()
		path += "\x00" + string(n.Data)
		if _, known := found[path]; !known {
			found[path] = at.lineOf(int(n.Raw.Offset))
		}
	}
	return path
}

// item returns the path of an item of a list.
func item(list string, i int) string { return list + "\x01" + strconv.Itoa(i) }

// noteInline records the keys of an inline table, and the items of a list.
func noteInline(n *unstable.Node, path string, at lines, found map[string]int, depth int) {
	if n == nil || depth > maxDepth {
		return
	}
	if n.Kind == unstable.Array {
		noteItems(n, path, at, found, depth)
	}
	if n.Kind != unstable.InlineTable {
		return
	}
	for child := n.Children(); child.Next(); {
		pair := child.Node()
		noteInline(pair.Value(), noteKey(pair, path, at, found), at, found, depth+1)
	}
}

func noteItems(n *unstable.Node, path string, at lines, found map[string]int, depth int) {
	for i, child := 0, n.Children(); child.Next() && i < maxNodes; i++ {
		value, below := child.Node(), item(path, i)
		if raw := firstRaw(value); raw.Length > 0 {
			found[below] = at.lineOf(int(raw.Offset))
		}
		noteInline(value, below, at, found, depth+1)
	}
}

// firstRaw returns the place of a value. A list has no place; its first item has
// one.
func firstRaw(n *unstable.Node) unstable.Range {
	for n != nil && n.Kind == unstable.Array {
		n = n.Child()
	}
	if n == nil {
		return unstable.Range{}
	}
	return n.Raw
}

type tomlBuilder struct {
	builder
	at map[string]int
}

func (t *tomlBuilder) node(v any, path string, line int) node {
	defer t.leave()
	if at, ok := t.at[path]; ok {
		line = at
	}
	if !t.enter(line) {
		return node{kind: nullKind, line: line}
	}
	switch v := v.(type) {
	case map[string]any:
		return t.table(v, path, line)
	case []any:
		list := node{kind: listKind, line: line}
		for i, below := range v {
			list.items = append(list.items, t.node(below, item(path, i), line))
		}
		return list
	}
	return tomlScalar(v, line)
}

// table builds a section, in the order of the file.
func (t *tomlBuilder) table(v map[string]any, path string, line int) node {
	keys := slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.at[path+"\x00"+a], t.at[path+"\x00"+b]), strings.Compare(a, b))
	})
	var parts []part
	for _, key := range keys {
		n := t.node(v[key], path+"\x00"+key, line)
		parts = append(parts, part{key, n.line, n})
	}
	return t.section(line, parts)
}

func tomlScalar(v any, line int) node {
	n := node{line: line}
	switch v := v.(type) {
	case string:
		n.kind, n.text = textKind, v
	case bool:
		n.kind, n.text = boolKind, strconv.FormatBool(v)
	case int64:
		n.kind, n.text = numberKind, strconv.FormatInt(v, 10)
	case float64:
		n.kind, n.text = numberKind, strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		n.kind, n.text = dateKind, v.Format(time.RFC3339Nano)
	default: // the local dates and times of the language
		n.kind, n.text = dateKind, fmt.Sprint(v)
	}
	return n
}
