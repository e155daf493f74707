package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/notation"
)

// walk matches the tree of a file with the tree of keys.
type walk struct {
	schema *schema
	layer  *layer
	source Origin   // without its line
	under  []string // the part of the tree that the file sets: apps.web
	texts  bool     // text is accepted for every key, as in a variable
}

// root reads the whole file.
func (w *walk) root(n node) {
	b := w.schema.root
	for _, part := range w.under {
		b = b.below(part)
	}
	if n.kind != sectionKind {
		w.problem("config.syntax", n.line, "contains "+string(n.kind)+", not keys", "")
		return
	}
	for _, p := range n.parts {
		if p.key != "$schema" { // a key for editors
			w.part(b, w.under, p)
		}
	}
}

func (w *walk) problem(code string, line int, text, hint string) {
	w.layer.problem(Problem{Code: code, Origin: w.at(line), Text: text, Hint: hint})
}

func (w *walk) at(line int) Origin {
	o := w.source
	o.Line = line
	return o
}

// part reads one key of the section at path.
func (w *walk) part(b *branch, path []string, p part) {
	path = append(slices.Clone(path), p.key)
	key := strings.Join(path, ".")
	next := b.below(p.key)
	switch {
	case next == nil:
		w.unknown(b, path, p)
	case next.field == nil:
		w.section(next, path, p)
	case !next.field.InFiles:
		w.problem("config.too_late", p.line, mask.Quote(key)+" decides which files are read, so no file can set it", "set "+EnvName(key))
	default:
		w.leaf(*next.field, key, p)
	}
}

// section reads the keys of a section. A section without keys is a mistake: it
// seems to reset a weaker layer, and does not.
func (w *walk) section(b *branch, path []string, p part) {
	key := strings.Join(path, ".")
	switch {
	case p.value.kind == nullKind, p.value.kind == sectionKind && len(p.value.parts) == 0:
		w.problem("config.empty_section", p.line, "the section "+key+" is empty", "remove it, or give it a key")
	case p.value.kind != sectionKind:
		w.problem("config.invalid", p.line, fmt.Sprintf("%s is a section of keys, but the value is %s", key, p.value.kind), w.example(path))
	default:
		for _, below := range p.value.parts {
			w.part(b, path, below)
		}
	}
}

// example returns a key below a section.
func (w *walk) example(path []string) string {
	if key := w.schema.example(strings.Join(path, ".")); key != "" {
		return "one of its keys is " + key
	}
	return ""
}

func (w *walk) unknown(b *branch, path []string, p part) {
	key := strings.Join(path, ".")
	switch {
	case w.layer.full(): // a suggestion takes time
	case strings.Contains(p.key, "."):
		w.problem("config.unknown_key", p.line, mask.Quote(p.key)+" contains a dot", dotHint(p.key))
	case b.names != nil:
		w.problem("config.invalid", p.line, mask.Quote(p.key)+" cannot be the alias of a cache", "an alias is a lower-case word, such as main")
	case b == w.schema.root.parts["apps"]:
		w.layer.problem(w.schema.unknownApp(p.key, w.at(p.line)))
	default:
		w.layer.problem(w.unknownKey(key, p))
	}
}

// dotHint returns the correction of a dotted key, as YAML. Other text with a
// dot, such as a URL, has none.
func dotHint(key string) string {
	if keyLetters.FindString(key) != key {
		return ""
	}
	parts := strings.Split(key, ".")
	return "write a section for each part: " + strings.Join(parts, ": {") + ": …" + strings.Repeat("}", len(parts)-1)
}

// unknownKey returns the problem for an unknown key, as the file writes it: a
// key in an app's file does not repeat the name of the app.
func (w *walk) unknownKey(key string, p part) Problem {
	before := strings.Join(w.under, ".")
	problem := w.schema.unknownKey(key, w.at(p.line))
	if before == "" {
		return problem
	}
	own := strings.TrimPrefix(key, before+".")
	problem.Text = "unknown key " + mask.Quote(own) + " below " + before
	if w.schema.root.below(p.key) != nil && !strings.Contains(own, ".") {
		problem.Hint = "set it in mega.config"
	}
	problem.Hint = strings.Replace(problem.Hint, before+".", "", 1)
	return problem
}

func (w *walk) leaf(f field, key string, p part) {
	v, err := f.accept(p.value)
	if w.texts && p.value.kind == textKind {
		v, err = f.parse(p.value.text), nil
	}
	if err == nil {
		w.layer.put(f, key, v, w.at(p.line))
		return
	}
	w.layer.problem(invalid(key, w.at(p.line), err))
}

// accept returns the value that a file sets for f. Nothing is converted: 1.10 as a
// number is 1.1, and 012 is ten.
func (f field) accept(n node) (Value, error) {
	family := familyOf(f.Type)
	switch {
	case n.kind == nullKind:
		return Value{}, &notation.Error{Text: "has no value", Hint: "remove the key, or give it one"}
	case family == listFamily && n.kind == listKind:
		return f.acceptList(n)
	case family == textFamily && n.kind == textKind, family == boolFamily && n.kind == boolKind,
		(family == intFamily || family == floatFamily) && n.kind == numberKind:
		return f.parse(n.text), nil
	case f.measured() && n.kind == numberKind:
		return f.parse(n.text), nil // and refused for its missing unit
	}
	return Value{}, f.mismatch(n)
}

func (f field) acceptList(n node) (Value, error) {
	v := f.parse("")
	v.list = []string{}
	for _, item := range n.items {
		if item.kind != textKind {
			return v, &notation.Error{Text: fmt.Sprintf("%s is %s, not text", item.asItem(), item.kind), Hint: inQuotes(item)}
		}
		v.list = append(v.list, item.text)
	}
	v.Text = strings.Join(v.list, ",")
	return v, nil
}

// asItem names an item of a list, with its line if the source has lines.
func (n node) asItem() string {
	if n.line == 0 {
		return "an item of the list"
	}
	return fmt.Sprintf("the item in line %d", n.line)
}

// mismatch returns the error for a value of another type.
func (f field) mismatch(n node) error {
	m := &notation.Error{Text: fmt.Sprintf("is %s, but the key takes %s", n.kind, f.takes())}
	if n.text != "" && f.Type != reflect.TypeFor[config.Secret]() {
		m.Text = f.quoted(n.text) + " " + m.Text
	}
	switch family := familyOf(f.Type); {
	case family == listFamily && n.kind == textKind:
		items := f.parse(n.text).list
		for i, item := range items {
			items[i] = mask.Quote(item) // as all formats take it
		}
		m.Hint = "write a list: [" + strings.Join(items, ", ") + "]"
	case f.Type == reflect.TypeFor[config.Addr]() && notation.AddrHint(n.text, `"`) != "":
		m.Hint = notation.AddrHint(n.text, `"`)
	case family == textFamily && (n.kind == numberKind || n.kind == boolKind || n.kind == dateKind):
		if _, err := f.check(f.parse(n.text)); err == nil {
			m.Hint = f.quoteHint(n)
		}
	case family == boolFamily:
		m.Hint = boolHint(n.text)
	case n.kind == textKind: // in the place of a number
		if _, err := f.check(f.parse(n.text)); err == nil {
			m.Hint = "write it without quotes"
		}
	}
	return m
}

// boolHint returns the correction for a text in the place of true or false. YAML
// reads yes and no as text.
func boolHint(text string) string {
	switch strings.ToLower(text) {
	case "yes", "on", "y":
		return "write true"
	case "no", "off", "n":
		return "write false"
	case "true", "false":
		return "write it without quotes"
	}
	return "write true or false"
}

func (f field) quoteHint(n node) string {
	if f.Type == reflect.TypeFor[config.Secret]() {
		return "put it in quotes"
	}
	return inQuotes(n)
}

func inQuotes(n node) string {
	if n.text == "" {
		return ""
	}
	return "write " + mask.Quote(n.text)
}

// takes describes the legal values of a key, as a phrase.
func (f field) takes() string {
	switch family := familyOf(f.Type); {
	case isDuration(f.Type):
		return "a duration such as 10s"
	case f.Type == reflect.TypeFor[config.Size]():
		return "a size such as 1MiB"
	case f.Type == reflect.TypeFor[config.URL]():
		return "a URL"
	case f.Type == reflect.TypeFor[config.Addr]():
		return "an address such as 127.0.0.1:8080"
	case family == listFamily:
		return "a list of texts"
	case family == boolFamily:
		return "true or false"
	case family == intFamily:
		return "a whole number"
	case family == floatFamily:
		return "a number"
	}
	return "text"
}
