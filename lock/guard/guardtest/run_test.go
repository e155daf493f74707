package guardtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

func TestEachRuleHasACase(t *testing.T) {
	for _, r := range Rules() {
		ofSQL := r.ID == "G4" || r.ID == "G5"
		has := slices.ContainsFunc(cases, func(c testCase) bool { return c.rule == r.ID })
		if has == ofSQL {
			t.Errorf("%s has a case: %v", r.ID, has)
		}
	}
}

func TestAStoreThatKeepsTheRulesPasses(t *testing.T) { Run(t, new(store).target()) }

// Each defect is found by the case that claims the contrary.
func TestBrokenStoresAreNoticed(t *testing.T) {
	for _, tt := range []struct{ defect, rule, claim string }{
		{"keeps the fence of a failed write", "G1", "a write that fails leaves neither line nor fence"},
		{"keeps the line of a failed write", "G1", "a write that fails leaves neither line nor fence"},
		{"checks outside the transaction", "G1", "writers of a key are serial without the lock"},
		{"accepts an older fence", "G2", "an older fence is refused"},
		{"refuses an equal fence", "G2", "an older fence is refused"},
		{"does not record a greater fence", "G2", "an older fence is refused"},
		{"checks the innermost lease only", "G3", "every lease is checked"},
		{"passes without a lease", "G3", "a live lease is needed"},
		{"does not look at the lease again", "G3", "a lease that ends before the commit ends the write"},
		{"has one fence for all slots", "G6", "slots have fences of their own"},
		{"takes a pool of one for a plain key", "G6", "a slot keeps its fence when a pool of one grows"},
		{"does not count refusals", "G7", "a refusal is counted and a reset forgets the key"},
		{"does not reset", "G7", "a refusal is counted and a reset forgets the key"},
	} {
		t.Run(tt.defect, func(t *testing.T) {
			i := slices.IndexFunc(cases, func(c testCase) bool { return c.rule == tt.rule && c.claim == tt.claim })
			if i < 0 {
				t.Fatal("there is no such case")
			}
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() { // Fatal ends the goroutine
				defer close(done)
				cases[i].run(env{r, (&store{defect: tt.defect}).target(), "k"})
			}()
			<-done
			if !r.failed.Load() {
				t.Errorf("%s %s: passes on a store that %s", tt.rule, tt.claim, tt.defect)
			}
		})
	}
}

// recorder notes failures instead of reporting them.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

func (r *recorder) Error(...any)          { r.failed.Store(true) }
func (r *recorder) Errorf(string, ...any) { r.failed.Store(true) }
func (r *recorder) Fatal(...any) {
	r.failed.Store(true)
	runtime.Goexit()
}

// store keeps fences and lines in memory. With a defect it breaks a rule.
type store struct {
	defect string
	calls  atomic.Int32  // of inside
	second chan struct{} // closed by the second one

	mu     sync.Mutex // a transaction; guards the fields below
	fences map[string]uint64
	lines  map[string][]uint64
}

func (s *store) target() Target {
	s.second = make(chan struct{})
	s.fences, s.lines = map[string]uint64{}, map[string][]uint64{}
	return Target{
		Save: s.save,
		Ledger: func(_ context.Context, key string) ([]uint64, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Clone(s.lines[key]), nil
		},
		Reset: func(_ context.Context, key string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.defect != "does not reset" {
				delete(s.fences, key)
			}
			return nil
		},
	}
}

func (s *store) save(ctx context.Context, key string, fence uint64, inside func() error) (err error) {
	leases, err := guard.Leases(ctx)
	if err != nil && (s.defect != "passes without a lease" || !errors.Is(err, lock.ErrNoLease)) {
		return err
	}
	if s.defect == "checks the innermost lease only" {
		leases = lock.LeasesFrom(ctx)[:1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fences, lines := maps.Clone(s.fences), s.lines[key]
	committed := false
	defer func() { // a rollback
		if !committed && s.defect != "keeps the fence of a failed write" {
			s.fences = fences
		}
		if !committed && s.defect != "keeps the line of a failed write" {
			s.lines[key] = lines
		}
	}()
	if err := s.check(leases); err != nil {
		return err
	}
	s.lines[key] = append(slices.Clone(lines), fence)
	if inside != nil {
		if err := s.call(inside); err != nil {
			return err
		}
		s.lines[key] = append(slices.Clone(lines), fence) // of what was read before
	}
	if _, err := guard.Leases(ctx); err != nil && len(leases) > 0 && s.defect != "does not look at the lease again" {
		return err
	}
	committed = true
	return nil
}

func (s *store) call(inside func() error) error {
	if s.defect == "checks outside the transaction" {
		s.mu.Unlock()
		defer s.mu.Lock()
		switch s.calls.Add(1) {
		case 1: // until a second writer has read too
			<-s.second
		case 2:
			close(s.second)
		}
	}
	return inside()
}

func (s *store) check(leases []*lock.Lease) error {
	for _, l := range leases {
		id := l.Key()
		switch {
		case s.defect == "has one fence for all slots":
		case s.defect == "takes a pool of one for a plain key" && l.Slots() == 1:
		default:
			id = guard.ID(l)
		}
		highest := s.fences[id]
		stale := l.Fence() < highest || s.defect == "refuses an equal fence" && l.Fence() == highest
		if stale && s.defect == "does not count refusals" {
			return fmt.Errorf("%w: %d is below %d", lock.ErrStale, l.Fence(), highest)
		}
		if stale && s.defect != "accepts an older fence" {
			return l.Stale()
		}
		if s.defect != "does not record a greater fence" || highest == 0 {
			s.fences[id] = l.Fence()
		}
	}
	return nil
}
