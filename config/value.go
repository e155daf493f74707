package config

import (
	"cmp"
	"maps"
)

// Value is a key's text and where it came from.
type Value struct {
	Key    string
	Text   string
	Origin Origin
	// Shadows are the origins of the layers below that set the key too, the
	// nearest first; the default is not among them.
	Shadows []Origin

	secret, url bool
}

func (v Value) masked() string {
	switch {
	case v.secret:
		return mask
	case v.url:
		return maskURL(v.Text)
	}
	return v.Text
}

// Origin is where a value came from. The zero Origin says that nothing set it.
type Origin struct {
	Layer string // "default", "env"
	Name  string // of the variable, in the layer env
}

// String returns "default", or "env MEGA_LOCK_TTL".
func (o Origin) String() string {
	if o.Name != "" {
		return o.Layer + " " + o.Name
	}
	return cmp.Or(o.Layer, "not set")
}

// IsDefault reports whether nobody set the value.
func (o Origin) IsDefault() bool { return o.Layer == "" || o.Layer == "default" }

// merge lays the layers over each other, the strongest last.
func merge(layers ...map[string]Value) map[string]Value {
	merged := map[string]Value{}
	for _, layer := range layers {
		for key, v := range maps.All(layer) {
			if below, ok := merged[key]; ok && !below.Origin.IsDefault() {
				v.Shadows = append([]Origin{below.Origin}, below.Shadows...)
			}
			merged[key] = v
		}
	}
	return merged
}
