package megactx

import (
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
	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"
)

// Locales are an app's texts in the languages that it speaks. They are kept in
// files, catalogs, as go-i18n has them: the last word of a file's name before
// its ending is the locale, as in ko.yaml, active.pt-BR.toml and en.json.
//
//	cart:
//	  added: "{name|을/를} 담았습니다."
//	  items: {one: "{count} item", other: "{count} items"}
//
// A text is found by its path, "cart.items". A message with plural forms is
// chosen by the value called count. {name} stands for a value, {name|을/를} for
// a value with the Korean particle that suits it, and {|을/를} for a particle
// that suits the text before it.
type Locales struct {
	names    []string
	matcher  language.Matcher
	catalogs map[string]*catalog
}

// catalog is what one locale says.
type catalog struct {
	name     string
	tag      language.Tag
	plural   *i18n.Localizer // knows the language's plural forms
	messages map[string]forms
}

// forms are the plural forms of a message by their CLDR names; one without
// plurals has "other" alone.
type forms map[string]*message

// ParseLocales reads the catalogs of every file system; a later one's texts
// replace an earlier one's. A file system that has nothing but one folder at
// its root stands for that folder.
//
// The app speaks the locales in offered, the first of which is for whoever
// wants none of them; without any, all for which there is a catalog, English
// or else the first in alphabetical order before the others. The catalogs of
// the locales offered have to agree; see [CheckLocales].
func ParseLocales(offered []string, sources ...fs.FS) (*Locales, error) {
	all := map[string]*catalog{}
	for _, source := range sources {
		found, err := readCatalogs(below(source))
		if err != nil {
			return nil, fmt.Errorf("parse locales: %w", err)
		}
		for name, c := range found {
			if known := all[name]; known != nil {
				maps.Copy(known.messages, c.messages)
			} else {
				all[name] = c
			}
		}
	}
	l, err := newLocales(offered, all)
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return nil, fmt.Errorf("parse locales: %w", err)
	}
	return l, nil
}

// CheckLocales reads catalogs as ParseLocales does and returns all that is
// wrong with them: a key or a placeholder that one locale has and another has
// not, plural forms that the language needs or does not know, and in Korean a
// particle right behind a placeholder, which has to be written {name|을/를}.
func CheckLocales(sources ...fs.FS) error {
	_, err := ParseLocales(nil, sources...)
	return err
}

func newLocales(offered []string, all map[string]*catalog) (*Locales, error) {
	l := &Locales{catalogs: map[string]*catalog{}}
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
			return nil, fmt.Errorf("the locale %q has no catalog: there is none called %s.yaml, .toml or .json", text, text)
		}
		if l.catalogs[c.name] == nil {
			tags, l.names, l.catalogs[c.name] = append(tags, tag), append(l.names, c.name), c
		}
	}
	l.matcher = language.NewMatcher(tags)
	return l, nil
}

// Names are the locales that the app speaks, the first one for whoever wants
// none of them.
func (l *Locales) Names() []string {
	if l == nil {
		return nil
	}
	return slices.Clone(l.names)
}

// match returns the locale that suits best what is wanted, the most important
// first, each as in an Accept-Language header.
func (l *Locales) match(wanted ...string) string {
	if l == nil || len(l.names) == 0 {
		return ""
	}
	_, i := language.MatchStrings(l.matcher, wanted...)
	return l.names[i]
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
		"yaml": yaml.Unmarshal, "yml": yaml.Unmarshal, "toml": toml.Unmarshal, "json": json.Unmarshal,
	}
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
		return fmt.Errorf("the name does not say the locale, as ko.%s does: %w", format, err)
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

// pluralForms are the names that CLDR has for them.
func pluralForms() []string { return []string{"zero", "one", "two", "few", "many", "other"} }

func newCatalog(tag language.Tag) *catalog {
	return &catalog{
		name: tag.String(), tag: tag, messages: map[string]forms{},
		plural: i18n.NewLocalizer(i18n.NewBundle(tag), tag.String()),
	}
}

// add takes a message of a file apart.
func (c *catalog) add(m *i18n.Message) error {
	if c.messages[m.ID] != nil {
		return errors.New("there are two of it")
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
	if all["other"] == nil {
		return errors.New("it has no text")
	}
	c.messages[m.ID] = all
	return nil
}

// form returns the plural form for a number: an integer, or the text of one
// with a fraction.
func (c *catalog) form(count any) (string, error) {
	return c.plural.Localize(&i18n.LocalizeConfig{
		PluralCount:    count,
		TemplateParser: template.IdentityParser{},
		DefaultMessage: &i18n.Message{ID: "form", Zero: "zero", One: "one", Two: "two", Few: "few", Many: "many", Other: "other"},
	})
}

// countOf makes a value what form takes.
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
