package guard

import (
	"context"
	"fmt"
	"sync"
)

// Store keeps the greatest fence that it has seen for each key. Implementations
// are safe for concurrent use.
type Store interface {
	// Advance reports whether fence is at least the greatest fence seen for
	// key, and records it, in one atomic step. The key is an opaque text of
	// printable ASCII: the percent-encoded key of the lock, for a slot of a pool
	// followed by a slash and the slot's number. If the error is not nil,
	// nothing is known about the fence.
	Advance(ctx context.Context, key string, fence uint64) (bool, error)
}

// Memory is a [Store] in this process, for tests and for services that have one
// process. The zero value is ready. It keeps every key that it has seen.
type Memory struct {
	mu      sync.Mutex // guards the field below
	highest map[string]uint64
}

// Advance implements [Store]. It never returns an error.
func (m *Memory) Advance(_ context.Context, key string, fence uint64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fence < m.highest[key] {
		return false, nil
	}
	if m.highest == nil {
		m.highest = map[string]uint64{}
	}
	m.highest[key] = fence
	return true, nil
}

// admit checks claims that have arrived at s. It returns ErrStale for the first
// one that is refused.
func admit(ctx context.Context, s Store, all []claim) error {
	for _, c := range all {
		ok, err := s.Advance(ctx, c.id(), c.fence)
		if err != nil {
			return fmt.Errorf("check the fence of %q: %w", c.key, err)
		}
		if !ok { // G2
			return c.stale()
		}
	}
	return nil
}
