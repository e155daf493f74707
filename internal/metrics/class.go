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

// otherClass is the class of all further keys after maxClasses.
const otherClass = "other"

// classes finds the metrics, a C, of the class of a key: the part before its first
// colon, or the key itself. The lookup of a known class neither locks nor allocates.
type classes[C any] struct {
	make  func(name string) *C
	other func() *C // made at its first use

	mu    sync.Mutex // guards writes of known
	known atomic.Pointer[map[string]*C]
}

func newClasses[C any](create func(name string) *C) *classes[C] {
	c := &classes[C]{make: create, other: sync.OnceValue(func() *C { return create(otherClass) })}
	c.known.Store(&map[string]*C{})
	return c
}

// of returns the class of key.
func (c *classes[C]) of(key string) *C {
	part := classOf(key)
	known := *c.known.Load()
	if found, ok := known[part]; ok {
		return found
	}
	if len(known) >= maxClasses {
		return c.other()
	}
	return c.add(part)
}

// classOf returns the part of key that is its class. The part keeps its colon, so
// that it differs from a key that is the same word.
func classOf(key string) string {
	if part := key[:strings.IndexByte(key, ':')+1]; part != "" {
		return part
	}
	return key
}

func (c *classes[C]) add(part string) *C {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := *c.known.Load()
	if found, ok := known[part]; ok {
		return found
	}
	if len(known) >= maxClasses {
		return c.other()
	}
	// Clone the part: a substring would keep the larger text alive.
	part = strings.Clone(part)
	added := c.make(className(part))
	next := maps.Clone(known)
	next[part] = added
	c.known.Store(&next)
	return added
}

// className returns the label of a class: "order:*", or its only key.
func className(part string) string {
	if strings.HasSuffix(part, ":") {
		return part + "*"
	}
	return part
}
