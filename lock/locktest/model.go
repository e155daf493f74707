package locktest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/megaframework/mega/lock"
)

// model knows what the leases and waiters of a run of random calls have seen.
type model struct {
	fail func(format string, args ...any)
	tail chan struct{} // has room while no call joins the line; a mutex would stop fake time

	mu   sync.Mutex             // guards the fields below
	last map[string]*lock.Lease // the last one that entered, by key and slot
	line []*place               // the places of a strict queue, in order, without those served
}

func newModel(fail func(format string, args ...any)) *model {
	return &model{fail: fail, tail: make(chan struct{}, 1), last: make(map[string]*lock.Lease)}
}

// enter notes that a caller works under the lease.
func (m *model) enter(l *lock.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := fmt.Sprint(l.Key(), " slot ", l.Slot())
	last := m.last[name]
	if last == l {
		return
	}
	live := last != nil && last.Err() == nil // before the look at l, which is the later grant
	if l.Err() != nil {
		return // it may have been granted before last
	}
	if live {
		m.fail("%s was granted with fence %d while its holder had fence %d", name, l.Fence(), last.Fence())
	}
	if last != nil && l.Fence() <= last.Fence() {
		m.fail("%s: fence %d follows %d", name, l.Fence(), last.Fence())
	}
	m.last[name] = l
}

// place is the place of a call in a strict queue.
type place struct {
	gone bool        // its caller has given up; guarded by model.mu
	left func() bool // reports whether its process has left
}

// place returns the next place.
func (m *model) place(left func() bool) *place {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &place{left: left}
	m.line = append(m.line, p)
	return p
}

// gives notes that the caller at p gives up.
func (m *model) gives(p *place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.gone = true
}

// served notes that the key was granted to p.
func (m *model) served(p *place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.Index(m.line, p)
	if at < 0 {
		return // a later place was served, as this one was giving up
	}
	for _, earlier := range m.line[:at] {
		if !earlier.gone && !earlier.left() {
			m.fail("under FIFO a waiter was served before an earlier one")
		}
	}
	m.line = m.line[at+1:]
}

// isOneOf reports whether err is one of the targets.
func isOneOf(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
