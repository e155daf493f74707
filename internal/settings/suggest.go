package settings

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/spelling"
)

// nearestKey returns the key or section with the most similar spelling, or the
// only one that ends in the same part.
func (sc *schema) nearestKey(key string) string {
	keys := slices.DeleteFunc(sc.keys(key), func(k string) bool { return strings.HasPrefix(key, k+".") })
	for _, k := range keys {
		if spellingOf(k) == spellingOf(key) {
			return k
		}
	}
	if best := spelling.Nearest(key, keys); best != "" {
		return best
	}
	if url := sc.keyOfScheme(key); url != "" {
		return url
	}
	last := "." + key[strings.LastIndexByte(key, '.')+1:]
	same := slices.DeleteFunc(keys, func(k string) bool { return !strings.HasSuffix(k, last) })
	if len(same) == 1 {
		return same[0]
	}
	return ""
}

// keyOfScheme returns the key of a URL whose scheme a key has in the place of a section,
// or "": for redis.addr it is the URL of a cache.
func (sc *schema) keyOfScheme(key string) string {
	scheme, _, _ := strings.Cut(key, ".")
	for _, f := range sc.fields {
		if sc.root.parts[scheme] == nil && slices.Contains(f.Schemes, scheme) {
			return strings.Join(f.aliased(nil), ".")
		}
	}
	return ""
}

// spellingOf returns a key without separators, in lower case, to compare keys of
// different styles: waitFor, wait-for.
func spellingOf(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// keys returns every key and section. The alias of a cache is the one in near,
// or a likely one.
func (sc *schema) keys(near string) (all []string) {
	seen := map[string]bool{}
	for _, f := range sc.fields {
		path := f.aliased(strings.Split(near, "."))
		for i := range path {
			if key := strings.Join(path[:i+1], "."); !seen[key] {
				seen[key] = true
				all = append(all, key)
			}
		}
	}
	return all
}

// aliased returns the path with the alias at the same place of near.
func (f field) aliased(near []string) []string {
	i := slices.Index(f.Path, "*")
	if i < 0 {
		return f.Path
	}
	path := slices.Clone(f.Path)
	path[i] = "main"
	if i+1 < len(near) && slices.Equal(near[:i], f.Path[:i]) && ValidName(near[i]) {
		path[i] = near[i]
	}
	return path
}

// example returns a key of a section, or "" if section is not one. In cache.url the
// alias is missing: the key is one of a cache with an alias.
func (sc *schema) example(section string) string {
	parent, name, _ := strings.Cut(section, ".")
	if b := sc.root.parts[parent]; b != nil && b.names != nil && b.names.parts[name] != nil {
		section = parent
	}
	for _, key := range sc.keys(section + ".") {
		if _, ok := sc.find(key); ok && strings.HasPrefix(key, section+".") {
			return key
		}
	}
	return ""
}

// EnvWarning returns a warning if env is probably a misspelling of dev, test or
// production, and "" otherwise. The program would start without the files and the
// defaults that its user expects. An env with a file of its own is no misspelling, nor
// is one whose name is more than a word, such as dev-2.
func (c *Config) EnvWarning() string {
	known := []string{"dev", "test", "production"}
	own := slices.ContainsFunc(c.Files(), func(f File) bool { return strings.Contains(filepath.Base(f.Path), "."+c.Env+".") })
	if c.Env == "" || own || slices.Contains(known, c.Env) || strings.Trim(c.Env, "abcdefghijklmnopqrstuvwxyz") != "" {
		return ""
	}
	for _, name := range known {
		if strings.HasPrefix(c.Env, name) || strings.HasPrefix(name, c.Env) || spelling.Nearest(c.Env, []string{name}) != "" {
			return fmt.Sprintf("env %s has no file of its own (did you mean %s?)", c.Env, name)
		}
	}
	return ""
}
