package routes_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/megaframework/mega/drivers/internal/routes"
)

func TestAListContainsWhatWasAddedAndNotRemoved(t *testing.T) {
	var l routes.List[int]
	for v := range 4 {
		l.Add(v)
	}
	before := l.All()
	l.Remove(1)
	l.Remove(3)
	l.Remove(3)
	if got := l.All(); !slices.Equal(slices.Sorted(slices.Values(got)), []int{0, 2}) || l.Len() != len(got) {
		t.Errorf("the list contains %v, and has the length %d", got, l.Len())
	}
	if !slices.Equal(before, []int{0, 1, 2, 3}) {
		t.Errorf("values that were returned before have changed: %v", before)
	}
}

func TestAChangeOfAListCopiesNothing(t *testing.T) {
	var l routes.List[int]
	for v := range 10_000 {
		l.Add(v)
	}
	l.Remove(0) // there is room for one
	if n := testing.AllocsPerRun(100, func() { l.Add(0); l.Remove(0) }); n != 0 {
		t.Errorf("two changes allocate %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { l.All() }); n != 0 {
		t.Errorf("a call without a change before allocates %v times", n)
	}
}

func TestAListIsSafeForSeveralGoroutines(t *testing.T) {
	var l routes.List[int]
	var changes sync.WaitGroup
	for v := range 8 {
		changes.Go(func() {
			for range 200 {
				l.Add(v)
				if !slices.Contains(l.All(), v) {
					t.Errorf("%d is missing", v)
				}
				l.Remove(v)
			}
		})
	}
	changes.Wait()
	if l.Len() != 0 || len(l.All()) != 0 {
		t.Errorf("%v are left", l.All())
	}
}

// member is a member of a group.
type member struct {
	busy, taken int
	refuses     bool
}

func (m *member) load() int { return m.busy }

func (m *member) offer() bool {
	if !m.refuses {
		m.taken++
	}
	return !m.refuses
}

func TestTheLessBusyOfTwoMembersTakesTheMessage(t *testing.T) {
	const messages = 300
	members := []*member{{busy: 1}, {busy: 1}, {busy: 2}, {refuses: true}}
	for range messages {
		if !routes.ToOne(members, (*member).load, (*member).offer) {
			t.Fatal("a message that was taken is refused")
		}
	}
	if a, b := members[0].taken, members[1].taken; a == 0 || b == 0 || a+b != messages {
		t.Errorf("the less busy members took %d and %d of %d messages", a, b, messages)
	}
	for _, m := range members {
		m.refuses = true
	}
	for n := range len(members) + 1 {
		if routes.ToOne(members[:n], (*member).load, (*member).offer) {
			t.Errorf("a message that none of %d members takes is not refused", n)
		}
	}
}
