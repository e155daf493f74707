package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// layer is the values from one source: legal values of known keys.
type layer struct {
	values   map[string]Value
	problems Problems
}

func newLayer() *layer { return &layer{values: map[string]Value{}} }

// problem adds a problem, if the layer does not have very many.
func (l *layer) problem(p Problem) {
	if !l.full() {
		l.problems = append(l.problems, p)
	}
}

// full reports whether the layer takes no more problems.
func (l *layer) full() bool { return len(l.problems) >= maxFaults }

// put adds the value of a key, or a problem if the value is illegal. It parses
// the value; everything else uses the result.
func (l *layer) put(f field, key string, v Value, o Origin) {
	v, err := f.check(v)
	if err != nil {
		l.problem(invalid(key, o, err))
		return
	}
	v.Key, v.Origin = key, o
	l.values[key] = v // the sources refuse a key that is set twice
}

func (l *layer) texts() map[string]string {
	texts := map[string]string{}
	for key, v := range l.values {
		texts[key] = v.Text
	}
	return texts
}

// tree returns the layer in koanf's form: nested texts and lists of texts.
func (l *layer) tree() (*koanf.Koanf, error) {
	flat := map[string]any{}
	for key, v := range l.values {
		flat[key] = v.Text
		if v.list != nil {
			flat[key] = v.list
		}
	}
	k := koanf.New(".")
	return k, k.Load(confmap.Provider(flat, "."), nil)
}

// merge merges the layers, the strongest last: sections merge key by key, and a
// list replaces a weaker list. Koanf merges the values; merge tracks the
// origins in parallel.
func merge(layers ...*layer) (map[string]Value, error) {
	all, origins := koanf.New("."), map[string]Value{}
	for _, l := range layers {
		k, err := l.tree()
		if err == nil {
			err = all.Merge(k)
		}
		if err != nil {
			return nil, fmt.Errorf("merge the configuration: %w", err)
		}
		for key, v := range l.values {
			origins[key] = v.shadowing(origins[key])
		}
	}
	merged := map[string]Value{}
	for key, text := range all.All() {
		merged[key] = origins[key].with(text)
	}
	return merged, nil
}

// shadowing returns v as a value that shadows below.
func (v Value) shadowing(below Value) Value {
	if !below.Origin.IsDefault() {
		v.Shadows = append([]Origin{below.Origin}, below.Shadows...)
	}
	return v
}

// with returns v with the merged text or list of koanf.
func (v Value) with(text any) Value {
	switch text := text.(type) {
	case string:
		v.Text = text
	case []string:
		v.list, v.Text = text, strings.Join(text, ",")
	}
	return v
}

// defaults returns the layer of the defaults, which all other layers override. env is
// the env of the process, which decides some of them.
func (sc *schema) defaults(s Source, env string) *layer {
	l := newLayer()
	put := func(key, text string) {
		f, ok := sc.find(key)
		switch v, known := sc.defaulted[key]; {
		case known:
			v.Key, v.Origin = key, Origin{Layer: LayerDefault}
			l.values[key] = v
		case ok:
			l.put(f, key, f.parse(text), Origin{Layer: LayerDefault})
		}
	}
	values := map[string]string{"env": "production", "name": programName(s.Name)}
	for _, f := range sc.fields {
		if f.Default != "" {
			values[f.Key()] = f.Default
		}
	}
	if s.Env != "" {
		values["env"] = s.Env
	}
	if inKubernetes(s.Environ) {
		values["shutdown.delay"] = "5s" // load balancers notice late that a pod ends
	}
	if env == "dev" {
		values["cluster.hang_timeout"] = "0s" // a debugger may pause a worker without limit
		values["ops.console"] = "true"
		values["ops.actions"] = "true"
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		put(key, values[key])
	}
	return l
}

// programName returns the name of an executable, if it is a valid program name.
func programName(executable string) string {
	legal := func(r rune) rune {
		if strings.ContainsRune("._-", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}
	name := strings.TrimLeft(strings.Map(legal, executable), "._-")
	return name[:min(len(name), 64)]
}
