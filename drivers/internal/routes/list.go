package routes

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
)

// List contains values, in no particular order. The zero List is empty. Its methods may
// be called from several goroutines at once.
type List[V comparable] struct {
	copied atomic.Pointer[[]V] // of all; nil after a change

	mu  sync.Mutex // guards all
	all []V
}

// Add adds v.
func (l *List[V]) Add(v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
	l.copied.Store(nil)
}

// Remove removes v, if the list has it.
func (l *List[V]) Remove(v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var had bool
	if l.all, had = without(l.all, v); had {
		l.copied.Store(nil)
	}
}

// without removes v from a list in place, and reports whether it was there. The last
// value takes its place: to move all values behind it takes long in a long list.
func without[V comparable](list []V, v V) (rest []V, had bool) {
	at := slices.Index(list, v)
	if at < 0 {
		return list, false
	}
	last := len(list) - 1
	list[at] = list[last]
	return slices.Delete(list, last, last+1), true // clears the place
}

// Len returns the number of values.
func (l *List[V]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// All returns the values, which the caller must not change. Only the first call after
// a change copies them.
func (l *List[V]) All() []V {
	if all := l.copied.Load(); all != nil {
		return *all
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.all)
	l.copied.Store(&all)
	return all
}

// ToOne offers a message to the members of a group until one takes it, and reports
// whether one does. It begins with the less busy of two that are drawn at random (S11).
func ToOne[V any](members []V, load func(V) int, offer func(V) bool) bool {
	n := len(members)
	if n == 0 {
		return false
	}
	a := rand.IntN(n)
	if n > 1 {
		if b := (a + 1 + rand.IntN(n-1)) % n; load(members[b]) < load(members[a]) {
			a = b
		}
	}
	for i := range n {
		if offer(members[(a+i)%n]) {
			return true
		}
	}
	return false
}
