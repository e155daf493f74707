// Package routes finds what is registered for a subject: a trie of patterns
// behind a cache of what was found. The bus drivers that route by themselves
// share it.
package routes

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Table holds values under patterns, and answers a subject with a plan: what
// its owner makes of the values that match. Finding the plan of a subject that
// was asked for before takes no lock. It may be used from several goroutines
// at once.
type Table[V comparable, P any] struct {
	plan func(subject string, each []V, groups [][]V) P
	seed maphash.Seed
	// cache is of the trie as it is: every change of the trie takes it away.
	cache atomic.Pointer[cache[P]]

	mu   sync.RWMutex // guards root
	root node[V]
}

// cacheSize is how many subjects are remembered at most; a power of two.
const cacheSize = 1024

// cache holds what was found for a subject at one of two places, so that it
// never grows, and two subjects that share a place do not drive each other
// out.
type cache[P any] [cacheSize]atomic.Pointer[found[P]]

// found is the plan of one subject. It never changes.
type found[P any] struct {
	subject string
	plan    P
}

// New returns an empty table. It calls plan with a subject, the values without
// a group that match it, and the members of each matching group; none of these
// may be changed. What plan returns is shared by all who ask for the subject
// until the table changes.
func New[V comparable, P any](plan func(subject string, each []V, groups [][]V) P) *Table[V, P] {
	return &Table[V, P]{plan: plan, seed: maphash.MakeSeed()}
}

// Add puts v under pattern, as a member of the group of that name unless it is
// "". A group is a pattern and a name.
func (t *Table[V, P]) Add(pattern, group string, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.root.add(pattern, group, v)
	t.cache.Store(nil)
}

// Remove takes out what Add has put in, and says whether it was there.
func (t *Table[V, P]) Remove(pattern, group string, v V) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.root.remove(pattern, group, v) {
		return false
	}
	t.cache.Store(nil)
	return true
}

// Clear takes everything out.
func (t *Table[V, P]) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.root = node[V]{}
	t.cache.Store(nil)
}

// Len returns how many places there are in the trie: none once everything was
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

// FindBytes is Find for a subject that is part of something larger, which it
// does not keep.
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

// places are where a subject may be remembered.
func places(hash uint64) (a, b uint64) { return hash % cacheSize, hash / cacheSize % cacheSize }

// look asks the trie, and remembers the answer at one of two places.
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

// current is the cache of the trie as it is, which cannot change while its
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
