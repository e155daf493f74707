// Package circle finds circles of waits among the calls of a process (A5). It has
// the waits of calls whose contexts carry leases: nobody waits for a call without
// a lease, so such a call is in no circle.
package circle

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Lease is a lease on the context of a waiting call.
type Lease interface {
	Key() string
	Live() bool
}

// Wait is the wait of a call whose context carries leases. Its fields are set
// before Add and not changed.
type Wait struct {
	Key  string // the key that the call waits for
	Held []Lease
	Site string      // file:line of the call
	Ends time.Time   // when the wait ends without a lease; zero if never
	End  func(error) // ends the wait early, with the error

	// Guarded by Search.mu:
	number uint64  // in the order of beginning
	at     int     // the index among the waits for the key; -1 when it is removed
	broken []*Wait // the circle in which this wait gave up
}

// Search has the waits of a process. The zero Search is ready.
//
// The leases on a context never change, so a circle is complete when its last
// wait begins: [Search.Add] is the only place that searches. The search is exact. A wait
// for a key whose lease is live is not over.
type Search struct {
	// mu guards the fields below. Live is called under it, and must not call
	// the Search.
	mu     sync.Mutex
	byKey  map[string][]*Wait // by the key that the call waits for
	number uint64             // of waits so far
}

// Add adds w, and removes and returns the waits that have to give up, w possibly
// among them. The caller ends the others.
func (s *Search) Add(w *Wait) (victims []*Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	w.number = s.number
	if s.byKey == nil {
		s.byKey = make(map[string][]*Wait)
	}
	w.at = len(s.byKey[w.Key])
	s.byKey[w.Key] = append(s.byKey[w.Key], w)
	for w.broken == nil { // it may complete several circles
		found := s.find(w)
		if found == nil {
			break
		}
		first := slices.MinFunc(found, (*Wait).compare)
		first.broken = waitsFrom(found, first)
		s.remove(first)
		victims = append(victims, first)
	}
	return victims
}

// Finish removes w. Another call does nothing. If w gave up, both return the circle:
// first w, then each wait that holds the key of the one before it. The last one waits
// for a key of w.
func (s *Search) Finish(w *Wait) (broken []*Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.at >= 0 {
		s.remove(w)
	}
	return w.broken
}

// compare orders waits by their end. On a tie the younger is first.
func (w *Wait) compare(o *Wait) int {
	switch {
	case w.Ends.Equal(o.Ends):
		return cmp.Compare(o.number, w.number)
	case w.Ends.IsZero():
		return 1
	case o.Ends.IsZero():
		return -1
	}
	return w.Ends.Compare(o.Ends)
}

// find returns a circle of waits that begins with w, or nil. Each wait of it
// holds the key that the next one waits for. The caller holds s.mu.
func (s *Search) find(w *Wait) []*Wait { return s.from(w, w, map[*Wait]bool{}) }

// from returns the rest of a circle that begins with w, from at on, or nil. It leaves
// out the waits in seen, and adds those that it tries. The caller holds s.mu.
func (s *Search) from(at, w *Wait, seen map[*Wait]bool) []*Wait {
	seen[at] = true
	for _, lease := range at.Held {
		key := lease.Key()
		waits := s.byKey[key]
		switch {
		case len(waits) == 0 || !lease.Live():
			continue
		case key == w.Key && at != w:
			return []*Wait{at}
		}
		for _, next := range waits {
			if seen[next] {
				continue
			}
			if rest := s.from(next, w, seen); rest != nil {
				return append([]*Wait{at}, rest...)
			}
		}
	}
	return nil
}

// waitsFrom returns a circle that find returned in the opposite direction, from
// first on.
func waitsFrom(found []*Wait, first *Wait) (all []*Wait) {
	at := slices.Index(found, first)
	for i := range found {
		all = append(all, found[(at-i+len(found))%len(found)])
	}
	return all
}

// remove removes w, in constant time: thousands of waits for one key may end together.
// The caller holds s.mu.
func (s *Search) remove(w *Wait) {
	waits := s.byKey[w.Key]
	end := len(waits) - 1
	last := waits[end]
	waits[w.at], last.at = last, w.at
	w.at, waits[end] = -1, nil
	s.byKey[w.Key] = waits[:end]
	if end == 0 { // L18
		delete(s.byKey, w.Key)
	}
}
