package locale

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// check returns all errors of the catalogues that the app offers.
func (l *Texts) check() error {
	var wrong []error
	keys := l.keys()
	for _, name := range l.names {
		c := l.catalogs[name]
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if c.messages[key] == nil {
				wrong = append(wrong, fmt.Errorf("%s: %s is missing; %s has it", name, key, keys[key]))
				continue
			}
			for _, err := range c.checkMessage(key) {
				wrong = append(wrong, fmt.Errorf("%s: %s: %w", name, key, err))
			}
		}
	}
	return errors.Join(append(wrong, l.checkPlaceholders(keys)...)...)
}

// keys returns all keys with the first locale that has them.
func (l *Texts) keys() map[string]string {
	keys := map[string]string{}
	for _, name := range slices.Backward(l.names) {
		for key := range l.catalogs[name].messages {
			keys[key] = name
		}
	}
	return keys
}

// checkPlaceholders compares the placeholders of a message with the
// placeholders in the first locale that has the message.
func (l *Texts) checkPlaceholders(keys map[string]string) (wrong []error) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		first := l.catalogs[keys[key]].messages[key].placeholders()
		for _, name := range l.names {
			m := l.catalogs[name].messages[key]
			if m == nil {
				continue
			}
			for _, missing := range without(first, m.placeholders()) {
				wrong = append(wrong, fmt.Errorf("%s: %s has no {%s}, but has it in %s", name, key, missing, keys[key]))
			}
			for _, more := range without(m.placeholders(), first) {
				wrong = append(wrong, fmt.Errorf("%s: %s has {%s}, but not in %s", name, key, more, keys[key]))
			}
		}
	}
	return wrong
}

// placeholders returns the placeholders of all forms: "one item" needs no count.
func (f forms) placeholders() (names []string) {
	for _, m := range f {
		names = append(names, m.placeholders()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func without(names, those []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(those, name) })
}

// checkMessage checks one message.
func (c *catalog) checkMessage(key string) (wrong []error) {
	all := c.messages[key]
	if len(all) > 1 {
		wrong = append(wrong, c.checkForms(all)...)
	}
	for _, form := range slices.Sorted(maps.Keys(all)) {
		if err := c.checkParticles(all[form]); err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// checkForms compares the plural forms of a message with the forms of the
// language. "other" is always valid: it serves values that are not numbers.
func (c *catalog) checkForms(all forms) (wrong []error) {
	used := c.usedForms()
	for _, form := range pluralForms() {
		switch has, uses := all[form] != nil, slices.Contains(used, form); {
		case uses && !has:
			wrong = append(wrong, fmt.Errorf("the form %q is missing", form))
		case has && !uses && form != "other":
			wrong = append(wrong, fmt.Errorf("the form %q is never used in this language", form))
		}
	}
	return wrong
}

// usedForms returns the forms of sample numbers: those below 200, some large
// numbers, and some with a fraction.
func (c *catalog) usedForms() (used []string) {
	counts := []any{1_000_000, 2_000_000, "0.0", "0.5", "1.0", "1.5", "2.5"}
	for n := range 200 {
		counts = append(counts, n)
	}
	for _, count := range counts {
		if form, err := c.form(count); err == nil && !slices.Contains(used, form) {
			used = append(used, form)
		}
	}
	return used
}

func (c *catalog) checkParticles(m *message) error {
	if base, _ := c.tag.Base(); base.String() != "ko" {
		for _, p := range m.parts {
			if p.particle != nil {
				return fmt.Errorf("%s/%s is a Korean particle", p.particle.closed, p.particle.open)
			}
		}
		return nil
	}
	if written, instead, found := m.bareParticle(); found {
		return fmt.Errorf("%s is right for some values only; write %s", written, strings.TrimSpace(instead))
	}
	return nil
}
