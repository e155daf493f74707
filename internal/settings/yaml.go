package settings

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/megaframework/mega/internal/yamldoc"
)

// readYAML parses the single document of a file.
func readYAML(data []byte) (node, []fault) {
	doc, err := yamldoc.Read(data)
	if second, ok := errors.AsType[*yamldoc.SecondError](err); ok {
		return node{kind: sectionKind}, []fault{{
			code: "config.syntax", line: min(second.Line, len(newLines(data))), text: "the file has a second document", hint: "keep one document",
		}}
	}
	if err != nil {
		return node{kind: sectionKind}, []fault{yamlFault(data, err)}
	}
	if doc == nil {
		return node{kind: sectionKind}, nil
	}
	y := yamlBuilder{last: len(newLines(data))}
	root := y.node(doc.Content[0])
	if root.kind == nullKind {
		root.kind = sectionKind
	}
	return y.done(root)
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// parserError matches the errors of the parser, which counts lines from 0. The
// scanner, which has similar messages, counts from 1.
var parserError = regexp.MustCompile(`^(did not find expected (<|node content|'-' indicator|key$|',' or )|found (undefined tag handle|duplicate %|incompatible YAML document))`)

// isControl reports whether YAML does not allow r.
func isControl(r rune) bool {
	switch r {
	case '\t', '\n', '\r', 0x85:
		return false
	case 0xFEFF, 0xFFFE, 0xFFFF:
		return true
	}
	return unicode.IsControl(r)
}

// yamlFault converts an error of the parser.
func yamlFault(data []byte, err error) fault {
	f := fault{code: "config.syntax", line: 1, text: "is not valid YAML"}
	m := yamlError.FindStringSubmatch(err.Error())
	if m == nil {
		return f
	}
	if n, err := strconv.Atoi(m[1]); err == nil {
		f.line = n
	}
	what, lines := m[2], newLines(data)
	switch {
	case strings.HasPrefix(what, "unknown anchor"):
		name := strings.Split(what+"''", "'")[1]
		f.line = lines.lineOf(aliasAt(data, name))
		what = "an alias has no anchor"
	case what == "control characters are not allowed":
		f.line = lines.lineOf(max(0, bytes.IndexFunc(data, isControl)))
	case m[1] != "" && parserError.MatchString(what):
		f.line++
	}
	f.line = min(f.line, len(lines))
	f.text = syntaxText("YAML", what)
	if strings.HasPrefix(what, "found incompatible YAML") { // the parser knows 1.1 alone, and reads files of 1.2
		f.hint = "remove the line %YAML"
	}
	for line := f.line; line <= min(f.line+1, len(lines)); line++ {
		if tabbed.MatchString(lines.text(data, line)) {
			f.line, f.text, f.hint = line, "is not YAML: a tab indents the line", "indent with spaces"
			break
		}
	}
	return f
}

// aliasAt returns the offset of the first alias of that name outside a comment.
func aliasAt(data []byte, name string) int {
	alias := regexp.MustCompile(`(?m)^(?:[^#\n]|[^\s#]#)*?(?:^|[\s\[{,])(\*` + regexp.QuoteMeta(name) + `)(?:$|[\s\]},:])`)
	if at := alias.FindSubmatchIndex(data); at != nil {
		return at[2]
	}
	return 0
}

// tabbed matches a line that a tab indents. The parser has several messages for
// it, which name the line or the one before it.
var tabbed = regexp.MustCompile(`^ *\t`)

type yamlBuilder struct {
	builder
	last int // the last line: YAML breaks lines at more characters than other formats
}

func (y *yamlBuilder) node(n *yaml.Node) node {
	defer y.leave()
	n.Line = min(n.Line, y.last)
	if !y.enter(n.Line) {
		return node{kind: nullKind, line: n.Line}
	}
	switch n.Kind {
	case yaml.AliasNode:
		return y.node(n.Alias)
	case yaml.MappingNode:
		return y.section(n.Line, y.parts(n, nil))
	case yaml.SequenceNode:
		list := node{kind: listKind, line: n.Line}
		for _, item := range n.Content {
			if y.full {
				break
			}
			list.items = append(list.items, y.node(item))
		}
		return list
	}
	return y.scalar(n)
}

func (y *yamlBuilder) scalar(n *yaml.Node) node {
	kinds := map[string]kind{
		"!!str": textKind, "!!int": numberKind, "!!float": numberKind, "!!bool": boolKind, "!!null": nullKind, "!!timestamp": dateKind,
	}
	k, ok := kinds[n.ShortTag()]
	if !ok { // the tag may be a secret that begins with !
		y.fault("config.syntax", n.Line, "a tag is not allowed here", "remove it, or put a text that begins with ! in quotes")
		k = textKind
	}
	return node{kind: k, text: n.Value, line: n.Line}
}

// parts returns the keys of a mapping. Keys that it merges with << follow its
// own keys; a merged key that the mapping or an earlier merge already has is
// left out.
func (y *yamlBuilder) parts(n *yaml.Node, under []*yaml.Node) (parts []part) {
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content) && !y.full; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		key.Line = min(key.Line, y.last)
		switch tag := key.ShortTag(); {
		case tag == "!!merge":
			merged = append(merged, value)
		case key.Kind == yaml.ScalarNode && tag == "!!str":
			parts = append(parts, part{key.Value, key.Line, y.node(value)})
		default:
			y.fault("config.syntax", key.Line, "a key is not text", `put it in quotes: "8080":`)
		}
	}
	for _, m := range merged {
		for _, p := range y.merged(m, append(slices.Clip(under), n)) {
			if !slices.ContainsFunc(parts, func(own part) bool { return own.key == p.key }) {
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// merged returns the keys of the mapping or mappings after <<. under holds the
// mappings into which they are merged.
func (y *yamlBuilder) merged(n *yaml.Node, under []*yaml.Node) (parts []part) {
	defer y.leave()
	n.Line = min(n.Line, y.last)
	switch {
	case !y.enter(n.Line):
	case n.Kind == yaml.AliasNode && !slices.Contains(under, n.Alias):
		return y.merged(n.Alias, under)
	case n.Kind == yaml.MappingNode:
		return y.parts(n, under)
	case n.Kind == yaml.SequenceNode:
		for _, m := range n.Content {
			parts = append(parts, y.merged(m, under)...)
		}
	default:
		y.fault("config.syntax", n.Line, "<< needs a mapping", "")
	}
	return parts
}
