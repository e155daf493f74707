package memory

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/megaframework/mega/bus/driver"
)

// routes finds the subscriptions for a subject: a trie of patterns behind a
// cache of what was found. Publishing a subject that was published before takes
// no lock.
type routes struct {
	seed maphash.Seed
	// cache is of the trie as it is: every change of the trie puts a new one in
	// its place.
	cache atomic.Pointer[cache]

	mu   sync.RWMutex // guards root
	root node
}

// cacheSize is how many subjects are remembered at most; a power of two.
const cacheSize = 1024

// cache holds what was found for a subject at one of two places, so that it
// never grows, and two subjects that share a place do not drive each other
// out.
type cache [cacheSize]atomic.Pointer[match]

// match is the subscriptions for one subject. It never changes.
type match struct {
	subject string
	each    []*interest // each of these gets the message
	groups  []group     // and one of each of these
}

func (r *routes) init() {
	r.seed = maphash.MakeSeed()
	r.cache.Store(new(cache))
}

func (r *routes) add(i *interest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.root.add(i.Pattern, i)
	r.cache.Store(new(cache))
}

func (r *routes) remove(i *interest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root.remove(i.Pattern, i) {
		r.cache.Store(new(cache))
	}
}

func (r *routes) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.root = node{}
	r.cache.Store(new(cache))
}

// deliver hands m to the subscriptions that match, and returns how many have
// taken it.
func (r *routes) deliver(m *driver.Message) (taken int) {
	found := r.find(m.Subject)
	for _, i := range found.each {
		if i.Sink.Deliver(*m) {
			taken++
		}
	}
	for _, g := range found.groups {
		if g.deliver(m) {
			taken++
		}
	}
	return taken
}

// find returns the subscriptions for subject.
func (r *routes) find(subject string) *match {
	hash := maphash.String(r.seed, subject)
	a, b := hash%cacheSize, hash/cacheSize%cacheSize
	c := r.cache.Load()
	if found := c[a].Load(); found != nil && found.subject == subject {
		return found
	}
	if found := c[b].Load(); found != nil && found.subject == subject {
		return found
	}
	return r.look(subject, a, b)
}

// look asks the trie, and remembers the answer at one of two places.
func (r *routes) look(subject string, a, b uint64) *match {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found := &match{subject: subject}
	r.root.match(subject, found)
	c := r.cache.Load() // of this trie, which cannot change now
	if c[a].Load() != nil {
		a = b
	}
	c[a].Store(found)
	return found
}

// group is the members of a group.
type group []*interest

// deliver hands m to one member: the one with less to do of two that are
// chosen at random, and if these are just leaving, any other.
func (g group) deliver(m *driver.Message) bool {
	if len(g) == 1 {
		return g[0].Sink.Deliver(*m)
	}
	a := rand.IntN(len(g))
	b := (a + 1 + rand.IntN(len(g)-1)) % len(g)
	if g[b].Sink.Load() < g[a].Sink.Load() {
		a = b
	}
	for n := range g {
		if g[(a+n)%len(g)].Sink.Deliver(*m) {
			return true
		}
	}
	return false
}
