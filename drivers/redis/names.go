package redis

import (
	"fmt"
	"strings"

	"github.com/megaframework/mega/lock/driver"
)

// DefaultKey is the template of the keys in Redis.
const DefaultKey = "mega:{%s}"

// suffixes end the names of one lock after its holder key, in the order in which
// scripts get them.
var suffixes = [...]string{"state", "order", "due", "slots"}

// perLock is the number of names of one lock.
const perLock = 1 + len(suffixes)

// markSuffix ends the name of a clock mark.
const markSuffix = "clock"

func (t template) separator() string {
	if t.tagged {
		return ":"
	}
	return " "
}

// template converts the key of a lock into its names in Redis, and back. No two
// keys share a name.
//
// With the placeholder inside a hash tag ("mega:{%s}") all names of a lock are
// in one slot of a Cluster. '%', '{' and '}' of the key are percent-encoded, so
// that a key can neither end the tag nor add text after it. Without a tag
// ("%s") the holder key is the name that other users of Redis would use; the
// other names contain a space, which no key of a lock has.
type template struct {
	before, after string
	tagged        bool
}

// newTemplate parses a template. A namespace becomes a part of all names: before
// the hash tag, or before the key where there is none.
func newTemplate(s, namespace string) (template, error) {
	before, after, ok := strings.Cut(s, "%s")
	switch {
	case !ok || strings.Contains(after, "%s"):
		return template{}, fmt.Errorf("key template %q: want %%s once, as in %q", s, DefaultKey)
	case strings.ContainsAny(s, " \t\r\n\v\f\x00"):
		return template{}, fmt.Errorf("key template %q: want no white space", s)
	}
	if fault := driver.NamespaceFault(namespace); fault != "" {
		return template{}, fmt.Errorf("namespace %q: %s", namespace, fault)
	}
	if namespace != "" { // L24
		start := max(strings.LastIndex(before, "{"), 0)
		if !strings.Contains(before, "{") {
			start = len(before)
		}
		before = before[:start] + namespace + ":" + before[start:]
	}
	t := template{before: before, after: after}
	if !strings.ContainsAny(s, "{}") {
		return t, nil
	}
	t.tagged = strings.Count(before, "{") == 1 && strings.Count(after, "}") == 1 &&
		!strings.Contains(before, "}") && !strings.Contains(after, "{")
	if !t.tagged {
		return template{}, fmt.Errorf("key template %q: braces belong around %%s alone, as in %q", s, DefaultKey)
	}
	return t, nil
}

// holder is the name of the key's holder.
func (t template) holder(key string) string {
	if t.tagged {
		key = tagEncoder.Replace(key)
	}
	return t.before + key + t.after
}

// names returns all names of the lock with this holder key, with room for the clock
// mark. Scripts build them in the same way.
func (t template) names(holder string) []string {
	all := append(make([]string, 0, perLock+1), holder)
	for _, s := range suffixes {
		all = append(all, holder+t.separator()+s)
	}
	return all
}

// key returns the key of the lock whose name in Redis is name, holder or not.
func (t template) key(name string) (string, bool) {
	sep := t.separator()
	for _, s := range suffixes {
		if base, ok := strings.CutSuffix(name, sep+s); ok && (!t.tagged || strings.HasSuffix(base, t.after)) {
			name = base
			break
		}
	}
	body, ok := strings.CutPrefix(name, t.before)
	if !ok {
		return "", false
	}
	if body, ok = strings.CutSuffix(body, t.after); !ok || body == "" {
		return "", false
	}
	if !t.tagged {
		return body, !strings.Contains(body, " ")
	}
	key, ok := decodeTag(body)
	return key, ok && t.holder(key) == name
}

// match is a glob for SCAN that finds the names of every key that begins with
// prefix, and perhaps others.
func (t template) match(prefix string) string {
	if t.tagged {
		prefix = tagEncoder.Replace(prefix)
	}
	return globEncoder.Replace(t.before+prefix) + "*"
}

var (
	tagEncoder  = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	globEncoder = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)
)

func decodeTag(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, !strings.ContainsAny(s, "{}")
	}
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(s, "%")
		b.WriteString(plain)
		if !found {
			return b.String(), true
		}
		if len(rest) < 2 {
			return "", false
		}
		c, ok := encoded[rest[:2]]
		if !ok {
			return "", false
		}
		b.WriteByte(c)
		s = rest[2:]
	}
}

var encoded = map[string]byte{"25": '%', "7B": '{', "7D": '}'}
