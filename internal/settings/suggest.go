package settings

import (
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/spelling"
)

// nearestKey returns the key or section with the most similar spelling, or the
// only one that ends in the same part.
func (sc *schema) nearestKey(key string) string {
	keys := slices.DeleteFunc(sc.keys(), func(k string) bool { return strings.HasPrefix(key, k+".") })
	for _, k := range keys {
		if plain(k) == plain(key) {
			return k
		}
	}
	if best := spelling.Nearest(key, keys); best != "" {
		return best
	}
	last := "." + key[strings.LastIndexByte(key, '.')+1:]
	same := slices.DeleteFunc(keys, func(k string) bool { return !strings.HasSuffix(k, last) })
	if len(same) == 1 {
		return same[0]
	}
	return ""
}

// plain returns a key in one spelling, to match other styles: waitFor,
// wait-for.
func plain(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// keys returns every key and section, with a likely name for a cache.
func (sc *schema) keys() (all []string) {
	seen := map[string]bool{}
	for _, f := range sc.fields {
		path := strings.Split(strings.Replace(f.Key(), "*", "main", 1), ".")
		for i := range path {
			if key := strings.Join(path[:i+1], "."); !seen[key] {
				seen[key] = true
				all = append(all, key)
			}
		}
	}
	return all
}
