// Package routes finds the values that are registered for a subject, with a
// trie of patterns and a cache of results, for the bus drivers that do their own
// routing. All bus drivers share its lists and its choice of a member of a group.
package routes

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Table holds values under patterns, and returns a plan for a subject: the
// result of the owner's plan function for the values that match. Finding a
// cached plan takes no lock. A Table may be used from several goroutines at
// once.
type Table[V comparable, P any] struct {
	plan func(subject string, each []V, groups [][]V) P
	seed maphash.Seed
	// cache belongs to the current state of the trie: every change of the trie
	// drops it.
	cache atomic.Pointer[cache[P]]

	mu   sync.RWMutex // guards root
	root node[V]
}

// cacheSize is the maximum number of cached subjects; a power of two.
const cacheSize = 1024

// cache holds the result for a subject at one of two places. It never grows,
// and two subjects that share a place do not evict each other.
type cache[P any] [cacheSize]atomic.Pointer[found[P]]

// found is the plan of one subject. It never changes.
type found[P any] struct {
	subject string
	plan    P
}

// New returns an empty table. It calls plan with a subject, the values without
// a group that match it, and the members of each matching group; plan must not
// change any of these. All callers of Find for the subject share the result of
// plan until the table changes.
func New[V comparable, P any](plan func(subject string, each []V, groups [][]V) P) *Table[V, P] {
	return &Table[V, P]{plan: plan, seed: maphash.MakeSeed()}
}

// Add adds v under pattern, as a member of the named group unless group is "".
// A group is identified by its pattern and its name.
func (t *Table[V, P]) Add(pattern, group string, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.root.add(pattern, group, v)
	t.cache.Store(nil)
}

// Remove removes a value that Add has added, and reports whether it was there.
func (t *Table[V, P]) Remove(pattern, group string, v V) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.root.remove(pattern, group, v) {
		return false
	}
	t.cache.Store(nil)
	return true
}

// Clear removes all values.
func (t *Table[V, P]) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.root = node[V]{}
	t.cache.Store(nil)
}

// Len returns the number of nodes in the trie. It is 0 when all values were
// removed.
func (t *Table[V, P]) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.root.len()
}

// Find returns the plan for subject, which must not be changed.
func (t *Table[V, P]) Find(subject string) *P {
	a, b := places(maphash.String(t.seed, subject))
	if c := t.cache.Load(); c != nil {
		if f := c[a].Load(); f != nil && f.subject == subject {
			return &f.plan
		}
		if f := c[b].Load(); f != nil && f.subject == subject {
			return &f.plan
		}
	}
	return t.look(subject, a, b)
}

// FindBytes is Find for a subject that is part of a larger buffer. It does not
// keep the buffer.
func (t *Table[V, P]) FindBytes(subject []byte) *P {
	a, b := places(maphash.Bytes(t.seed, subject))
	if c := t.cache.Load(); c != nil {
		if f := c[a].Load(); f != nil && f.subject == string(subject) {
			return &f.plan
		}
		if f := c[b].Load(); f != nil && f.subject == string(subject) {
			return &f.plan
		}
	}
	return t.look(string(subject), a, b)
}

// places returns the two places of a subject in the cache.
func places(hash uint64) (a, b uint64) { return hash % cacheSize, hash / cacheSize % cacheSize }

// look searches the trie, and caches the result at one of the two places.
func (t *Table[V, P]) look(subject string, a, b uint64) *P {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var m matches[V]
	t.root.match(subject, &m)
	f := &found[P]{subject, t.plan(subject, m.each, m.groups)}
	c := t.current()
	if c[a].Load() != nil {
		a = b
	}
	c[a].Store(f)
	return &f.plan
}

// current returns the cache of the current trie, which cannot change while the
// caller holds mu.
func (t *Table[V, P]) current() *cache[P] {
	if c := t.cache.Load(); c != nil {
		return c
	}
	c := new(cache[P])
	if t.cache.CompareAndSwap(nil, c) {
		return c
	}
	return t.cache.Load()
}
