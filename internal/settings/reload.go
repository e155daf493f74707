package settings

import (
	"maps"
	"slices"

	"github.com/megaframework/mega/config"
)

// Reload loads s again and returns the configuration with which a running
// process continues: old, with the new values of the live keys. The changes are
// the changed live keys and the keys that require a restart, which are not
// applied. If s has a mistake, Reload returns old and [Problems].
func Reload(old *Config, s Source) (*Config, []config.Change, error) {
	fresh, err := Load(s)
	if err != nil {
		return old, nil, err
	}
	values, changes := old.changed(fresh)
	next, problems := fresh.schema.assemble(s.Only, values, fresh.defaults, nil)
	if len(problems) > 0 { // a live key contradicts a key that is not live
		problems.sort()
		return old, nil, problems
	}
	next.files = fresh.files
	return next, changes, nil
}

// changed returns the values to continue with, and the differences. An
// unchanged value has its new origin.
func (c *Config) changed(fresh *Config) (map[string]Value, []config.Change) {
	values, changes := map[string]Value{}, []config.Change{}
	both := maps.Clone(c.values)
	maps.Copy(both, fresh.values)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		from, was := c.values[key]
		to, is := fresh.values[key]
		f, _ := fresh.schema.find(key)
		if was != is || from.Text != to.Text || !slices.Equal(from.list, to.list) {
			changes = append(changes, config.Change{Key: key, Old: from.masked().Text, New: to.masked().Text, Origin: to.Origin.String(), Live: f.Live})
			if !f.Live {
				to, is = from, was
			}
		}
		if is {
			values[key] = to
		}
	}
	return values, changes
}
