package config

import (
	"maps"
	"slices"
)

// Change is a key whose value differs from what it was.
type Change struct {
	Key    string `json:"key"`
	Old    string `json:"old"` // masked, as New is; empty where there was none
	New    string `json:"new"`
	Origin Origin `json:"origin"` // of the new value; the zero Origin where nothing sets the key any more
	Live   bool   `json:"live"`   // it is in force; otherwise it takes a restart
}

// Reload loads s anew and returns the configuration that a running process may
// go on with: old, with the new values of those keys that are live. The
// changes are those and, not in force, the ones that take a restart. If
// anything is wrong with s, it returns old, and [Problems].
func Reload(old *Config, s Source) (*Config, []Change, error) {
	fresh, err := Load(s)
	if err != nil {
		return old, nil, err
	}
	values, changes := old.changed(fresh)
	next, problems := fresh.schema.assemble(s.Only, values, fresh.defaults)
	if len(problems) > 0 { // a live key contradicts one that is not
		problems.sort()
		return old, nil, problems
	}
	next.files = fresh.files
	return next, changes, nil
}

// changed returns the values to go on with, and what differs. A value that is
// the same comes with its new origin.
func (c *Config) changed(fresh *Config) (map[string]Value, []Change) {
	values, changes := map[string]Value{}, []Change{}
	both := maps.Clone(c.values)
	maps.Copy(both, fresh.values)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		from, was := c.values[key]
		to, is := fresh.values[key]
		f, _ := fresh.schema.find(key)
		if same := was == is && from.same(to); !same {
			changes = append(changes, Change{Key: key, Old: from.masked().Text, New: to.masked().Text, Origin: to.Origin, Live: f.Live})
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

func (v Value) same(other Value) bool {
	return v.Text == other.Text && slices.Equal(v.list, other.list)
}
