package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// maxClasses bounds the classes of keys, and with them the series of a
// process: keys without a colon are a class each.
const maxClasses = 200

// otherClass is the class of what comes when there is no room left.
const otherClass = "other"

// classes finds the class of a key: what stands before its first colon, or the
// key itself. Looking up one that is known takes neither a mutex nor memory.
type classes struct {
	make  func(name string) *class
	other func() *class // made when it is needed first

	mu    sync.Mutex // for writers of known
	known atomic.Pointer[map[string]*class]
}

func newClasses(create func(name string) *class) *classes {
	c := &classes{make: create, other: sync.OnceValue(func() *class { return create(otherClass) })}
	c.known.Store(&map[string]*class{})
	return c
}

// of returns the class of key.
func (c *classes) of(key string) *class {
	// With its colon, the part before it differs from a key that is the same
	// word.
	part := key[:strings.IndexByte(key, ':')+1]
	if part == "" {
		part = key
	}
	known := *c.known.Load()
	if found, ok := known[part]; ok {
		return found
	}
	if len(known) >= maxClasses {
		return c.other()
	}
	return c.add(part)
}

func (c *classes) add(part string) *class {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := *c.known.Load()
	if found, ok := known[part]; ok {
		return found
	}
	if len(known) >= maxClasses {
		return c.other()
	}
	// The key may be a part of a larger text, which is not kept alive for it.
	part = strings.Clone(part)
	added := c.make(className(part))
	next := maps.Clone(known)
	next[part] = added
	c.known.Store(&next)
	return added
}

// className is how a class is told: "order:*", or the key that it consists of.
func className(part string) string {
	if strings.HasSuffix(part, ":") {
		return part + "*"
	}
	return part
}
