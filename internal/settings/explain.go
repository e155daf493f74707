package settings

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
)

// Explanation describes a key and its value.
type Explanation struct {
	Key      string   `json:"key"`
	Doc      string   `json:"doc,omitempty"`
	Takes    string   `json:"takes"` // "a duration such as 10s"
	Value    string   `json:"value"` // masked
	Set      bool     `json:"set"`   // whether it has a value, which may be empty
	Origin   Origin   `json:"origin"`
	Shadows  []Origin `json:"shadows,omitempty"`  // the weaker layers that set it, the nearest first
	Inherits string   `json:"inherits,omitempty"` // the key whose value it has, if nothing sets its own
	Default  string   `json:"default,omitempty"`
	Variable string   `json:"variable"` // MEGA_LOCK_TTL
	Legal    []string `json:"legal,omitempty"`
	Min      string   `json:"min,omitempty"`
	Max      string   `json:"max,omitempty"`
	Like     string   `json:"like,omitempty"` // an example, if the text must match a pattern
	Required bool     `json:"required,omitempty"`
	Live     bool     `json:"live"`   // a running process applies a new value
	Secret   bool     `json:"secret"` // it is masked, and refused on a command line
}

// Explain describes a key and the origin of its value. For an unknown key it
// returns [Problems] that suggest the most similar key.
func (c *Config) Explain(key string) (Explanation, error) {
	f, ok := c.schema.find(key)
	if !ok || strings.Contains(key, "*") {
		return Explanation{}, Problems{c.schema.unknownKey(key, Origin{})}
	}
	v, set := c.lookup(key)
	own, shown := c.values[key], v.masked()
	e := Explanation{
		Key: key, Doc: f.Doc, Takes: f.takes(), Value: shown.Text, Set: set, Origin: v.Origin, Shadows: v.Shadows,
		Default: f.parse(c.defaults[key]).masked().Text, Variable: EnvName(key), Legal: slices.Concat(f.Enum, f.Schemes), Min: f.Min, Max: f.Max, Like: f.Like,
		Required: f.Required, Live: f.Live, Secret: f.Type == reflect.TypeFor[config.Secret](),
	}
	if own.Origin.Layer == "" {
		e.Inherits = f.Inherits
	} else if below, _ := c.lookup(f.Inherits); !below.Origin.IsDefault() {
		e.Shadows = slices.Concat(v.Shadows, []Origin{below.Origin}, below.Shadows)
	}
	return e, nil
}

// ExplainMissing describes a required key that no source sets. problems is the error of
// [Load]. ok is false if it does not report this key.
func ExplainMissing(s Source, key string, problems Problems) (e Explanation, ok bool) {
	sc, wrong := newSchema(s)
	ok = len(wrong) == 0 && slices.ContainsFunc(problems, func(p Problem) bool {
		f, _ := sc.find(p.Key)
		return p.Code == "config.missing" && p.Origin == (Origin{}) && (p.Key == key || f.Inherits == key)
	})
	if ok {
		e, _ = (&Config{schema: sc}).Explain(key) // it is a key
	}
	return e, ok
}

// Keys returns all keys, sorted. It lists the keys of a cache once for each
// configured cache.
func (c *Config) Keys() []string {
	all := map[string]bool{}
	for _, f := range c.schema.fields {
		if !strings.Contains(f.Key(), "*") {
			all[f.Key()] = true
			continue
		}
		for _, alias := range c.Caches() {
			all[strings.Replace(f.Key(), "*", alias, 1)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
