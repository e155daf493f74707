// Package locale keeps the texts of an app in its languages: catalogues in
// files, plural forms, and Korean particles.
//
// A catalogue is a file in the format of go-i18n. The last word of its name
// before the extension is the locale: ko.yaml, active.pt-BR.toml, en.json.
//
//	cart:
//	  added: "{name|을/를} 담았습니다."
//	  items: {one: "{count} item", other: "{count} items"}
//
// The key of a text is its path, "cart.items". The value called count selects
// the plural form of a message. {name} is replaced by a value, {name|을/를} by a
// value with the Korean particle that fits it, and {|을/를} by a particle that
// fits the text before it.
//
// The files: locale.go parses and matches, decode.go reads YAML and JSON, check.go
// compares catalogues, message.go parses a text, text.go renders it, josa.go selects
// particles.
package locale

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/nicksnyder/go-i18n/v2/i18n"
	"github.com/nicksnyder/go-i18n/v2/i18n/template"
	"github.com/pelletier/go-toml/v2"
	"golang.org/x/text/language"

	"github.com/megaframework/mega/internal/embedded"
)

// Texts are the texts of an app in its locales. A nil Texts has none. It is
// immutable and safe for concurrent use.
type Texts struct {
	names    []string
	matcher  language.Matcher
	catalogs map[string]*catalog
}

// catalog holds the messages of one locale.
type catalog struct {
	name     string
	tag      language.Tag
	plural   *i18n.Localizer // selects the plural forms of the language
	messages map[string]forms
}

// forms are the plural forms of a message by their CLDR names. A message without
// plurals has only "other".
type forms map[string]*message

// Parse reads the catalogues of all sources. A text of a later source replaces
// the same text of an earlier one. A source whose root has a single folder
// stands for that folder.
//
// The locales in offered are the locales of the app; the first is the default.
// Without offered, the app has all locales with a catalogue, with English first
// if it exists, then in alphabetical order. The catalogues must agree; see
// [Check].
func Parse(offered []string, sources ...fs.FS) (*Texts, error) {
	all := map[string]*catalog{}
	for _, source := range sources {
		found, err := readCatalogs(embedded.Root(source))
		if err != nil {
			return nil, fmt.Errorf("parse texts: %w", err)
		}
		for name, c := range found {
			if known := all[name]; known != nil {
				maps.Copy(known.messages, c.messages)
			} else {
				all[name] = c
			}
		}
	}
	l, err := newTexts(offered, all)
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return nil, fmt.Errorf("parse texts: %w", err)
	}
	return l, nil
}

// Check reads catalogues as Parse does and returns all their errors: a key or a
// placeholder that is missing in one locale, a plural form that is missing or
// unknown in the language, and a Korean particle right behind a placeholder,
// which must be written {name|을/를}.
func Check(sources ...fs.FS) error {
	_, err := Parse(nil, sources...)
	return err
}

func newTexts(offered []string, all map[string]*catalog) (*Texts, error) {
	l := &Texts{catalogs: map[string]*catalog{}}
	if len(offered) == 0 {
		offered = slices.Sorted(maps.Keys(all))
		if i := slices.Index(offered, "en"); i > 0 {
			offered = slices.Concat([]string{"en"}, slices.Delete(offered, i, i+1))
		}
	}
	var tags []language.Tag
	for _, text := range offered {
		tag, err := language.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("the locale %q: %w", text, err)
		}
		c := all[tag.String()]
		if c == nil {
			return nil, fmt.Errorf("the locale %q has no catalogue %s.yaml, .toml or .json", text, text)
		}
		if l.catalogs[c.name] == nil {
			tags, l.names, l.catalogs[c.name] = append(tags, tag), append(l.names, c.name), c
		}
	}
	l.matcher = language.NewMatcher(tags)
	return l, nil
}

// Names returns the locales of the app; the first is the default.
func (l *Texts) Names() []string {
	if l == nil {
		return nil
	}
	return slices.Clone(l.names)
}

// Match returns the locale that matches wanted best, the most important first,
// each written as in an Accept-Language header. Languages that are unknown or
// malformed are ignored. It returns "" without locales.
func (l *Texts) Match(wanted ...string) string {
	if l == nil || len(l.names) == 0 {
		return ""
	}
	for _, header := range wanted {
		if _, i, match := l.matcher.Match(languages(header)...); match != language.No {
			return l.names[i]
		}
	}
	return l.names[0]
}

// maxLanguages bounds the work for a header.
const maxLanguages = 100

// languages returns the languages of an Accept-Language header, the preferred one
// first. The parser refuses a whole header because of one item.
func languages(header string) []language.Tag {
	items := strings.SplitN(header, ",", maxLanguages+1)
	items = items[:min(len(items), maxLanguages)]
	tags, _, err := language.ParseAcceptLanguage(strings.Join(items, ","))
	if err == nil {
		return tags
	}
	items = slices.DeleteFunc(items, func(item string) bool {
		_, _, err := language.ParseAcceptLanguage(item)
		return err != nil
	})
	tags, _, _ = language.ParseAcceptLanguage(strings.Join(items, ",")) // each of them is right
	return tags
}

func readCatalogs(source fs.FS) (map[string]*catalog, error) {
	all := map[string]*catalog{}
	var wrong []error
	err := fs.WalkDir(source, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(source, file)
		if err != nil {
			return err
		}
		if err := readCatalog(all, file, text); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
		}
		return nil
	})
	return all, errors.Join(append(wrong, err)...)
}

func unmarshalers() map[string]i18n.UnmarshalFunc {
	return map[string]i18n.UnmarshalFunc{
		"yaml": textsOf(decodeYAML), "yml": textsOf(decodeYAML), "toml": textsOf(toml.Unmarshal), "json": textsOf(decodeJSON),
	}
}

// textsOf returns unmarshal with the line in its errors, and with an error for
// values that are not texts: i18n ignores some of them, and names no key.
func textsOf(unmarshal i18n.UnmarshalFunc) i18n.UnmarshalFunc {
	return func(data []byte, v any) error {
		if err := unmarshal(data, v); err != nil {
			return located(data, err)
		}
		root, ok := v.(*any)
		if !ok {
			return nil
		}
		var wrong []string
		if byKey, ok := (*root).(map[string]any); ok {
			wrong = notTexts(wrong, "", byKey)
		}
		slices.Sort(wrong)
		if len(wrong) > 0 {
			return errors.New(strings.Join(wrong, "\n"))
		}
		return nil
	}
}

// located adds the line to an error of a parser that leaves it out.
func located(data []byte, err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		before := data[:max(0, min(int(e.Offset), len(data))-1)]
		return fmt.Errorf("line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := e.Position()
		return fmt.Errorf("line %d: %w", line, err)
	}
	if strings.Contains(err.Error(), "found incompatible YAML document") {
		return fmt.Errorf("%w; remove the line %%YAML", err)
	}
	return err
}

// notTexts appends an error for each value below prefix that is neither a text
// nor a map of texts, and for each part of a text that has no value or is beside
// other texts. Another key without a value is checked later.
func notTexts(wrong []string, prefix string, values map[string]any) []string {
	beside := "" // the last text that is not a part
	for key, value := range values {
		if !isPart(key, value) {
			beside = max(beside, key)
		}
	}
	for key, value := range values {
		switch part := isPart(key, value); {
		case part && value == nil:
			wrong = append(wrong, prefix+key+": it has no text")
		case part && beside != "":
			wrong = append(wrong, fmt.Sprintf("%s%s: the name is reserved for a part of one text, and %s%s is beside it; rename it", prefix, key, prefix, beside))
		}
		kind := ""
		switch v := value.(type) {
		case nil, string, map[any]any: // i18n refuses a key that is not a text
			continue
		case map[string]any:
			wrong = notTexts(wrong, prefix+key+".", v)
			continue
		case []any:
			wrong = append(wrong, prefix+key+": it is a list, not a text")
			continue
		case bool:
			kind = strconv.FormatBool(v)
		case int, int64, uint64, float64:
			kind = "a number"
		default:
			kind = "a date"
		}
		wrong = append(wrong, fmt.Sprintf("%s%s: it is %s, not a text; write it in quotes", prefix, key, kind))
	}
	return wrong
}

// isPart reports whether i18n takes a value for a part of the text that its map
// then is, and not for a text of its own. A part may lack its value.
func isPart(key string, value any) bool {
	_, isText := value.(string)
	parts := append(pluralForms(), "id", "description", "hash", "leftdelim", "rightdelim", "translation")
	return key == "translation" || (isText || value == nil) && slices.Contains(parts, strings.ToLower(key))
}

// readCatalog adds the messages of one file.
func readCatalog(all map[string]*catalog, file string, text []byte) error {
	base := path.Base(file)
	format := strings.TrimPrefix(path.Ext(base), ".")
	if unmarshalers()[format] == nil {
		return errors.New("a catalog is a file in yaml, toml or json")
	}
	name := strings.TrimSuffix(base, "."+format)
	tag, err := language.Parse(name[strings.LastIndexByte(name, '.')+1:])
	if err != nil {
		return fmt.Errorf("the name must end in the locale, as in ko.%s: %w", format, err)
	}
	parsed, err := i18n.ParseMessageFileBytes(text, base, unmarshalers())
	if err != nil {
		return err
	}
	c := all[tag.String()]
	if c == nil {
		c = newCatalog(tag)
		all[c.name] = c
	}
	var wrong []error
	for _, m := range parsed.Messages {
		if err := c.add(m); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", m.ID, err))
		}
	}
	return errors.Join(wrong...)
}

// pluralForms returns the CLDR names of the plural forms.
func pluralForms() []string { return []string{"zero", "one", "two", "few", "many", "other"} }

func newCatalog(tag language.Tag) *catalog {
	return &catalog{
		name: tag.String(), tag: tag, messages: map[string]forms{},
		plural: i18n.NewLocalizer(i18n.NewBundle(tag), tag.String()),
	}
}

// add parses a message of a file.
func (c *catalog) add(m *i18n.Message) error {
	if c.messages[m.ID] != nil {
		return errors.New("it exists twice")
	}
	all := forms{}
	for form, text := range map[string]string{"zero": m.Zero, "one": m.One, "two": m.Two, "few": m.Few, "many": m.Many, "other": m.Other} {
		if text == "" {
			continue
		}
		parsed, err := parseMessage(text)
		if err != nil {
			return err
		}
		all[form] = parsed
	}
	if all["other"] == nil && (len(all) > 0 || m.Description != "") {
		return errors.New(`it has no text "other"; a plural form and a description are parts of one text`)
	}
	if all["other"] == nil {
		return errors.New("it has no text")
	}
	c.messages[m.ID] = all
	return nil
}

// form returns the plural form for a number: an integer, or the text of a number
// with a fraction.
func (c *catalog) form(count any) (string, error) {
	return c.plural.Localize(&i18n.LocalizeConfig{
		PluralCount:    count,
		TemplateParser: template.IdentityParser{},
		DefaultMessage: &i18n.Message{ID: "form", Zero: "zero", One: "one", Two: "two", Few: "few", Many: "many", Other: "other"},
	})
}

// countOf converts a value to an argument of form.
func countOf(v any) (any, error) {
	switch n := reflect.ValueOf(v); {
	case n.CanInt():
		return n.Int(), nil
	case n.CanUint():
		return strconv.FormatUint(n.Uint(), 10), nil
	case n.CanFloat():
		return strconv.FormatFloat(n.Float(), 'f', -1, 64), nil
	case n.Kind() == reflect.String:
		return n.String(), nil
	}
	return nil, fmt.Errorf("count is a %T, not a number", v)
}
