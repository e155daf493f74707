package circle_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/megaframework/mega/lock/internal/circle"
)

// lease is a lease of a key that may be lost.
type lease struct {
	key  string
	lost bool
}

func (l *lease) Key() string { return l.key }
func (l *lease) Live() bool  { return !l.lost }

func wait(key string, ends time.Duration, held ...circle.Lease) *circle.Wait {
	w := &circle.Wait{Key: key, Held: held}
	if ends > 0 {
		w.Ends = time.Unix(0, 0).Add(ends)
	}
	return w
}

func TestWaitThatEndsFirstGivesUp(t *testing.T) {
	var s circle.Search
	a, b, c := &lease{key: "a"}, &lease{key: "b"}, &lease{key: "c"}
	first, second, third := wait("b", 3, a), wait("c", 1, b), wait("a", 0, c)
	for _, w := range []*circle.Wait{first, second} {
		if victims := s.Add(w); victims != nil {
			t.Fatalf("%s: no circle is complete, but %v give up", w.Key, victims)
		}
	}
	if victims := s.Add(third); len(victims) != 1 || victims[0] != second {
		t.Fatalf("%v give up, want the wait for c", victims)
	}
	broken := s.Finish(second)
	if len(broken) != 3 || broken[0] != second || broken[1] != third || broken[2] != first {
		t.Errorf("the circle is %v", broken)
	}
	if s.Finish(first) != nil || s.Finish(third) != nil {
		t.Error("more than one wait gave up")
	}
}

func TestLostLeaseIsInNoCircle(t *testing.T) {
	var s circle.Search
	s.Add(wait("b", 0, &lease{key: "a", lost: true}))
	if victims := s.Add(wait("a", 0, &lease{key: "b"})); victims != nil {
		t.Errorf("%v give up", victims)
	}
}

func TestWaitsOfOneKeyEndInAnyOrder(t *testing.T) {
	var s circle.Search
	waits := make([]*circle.Wait, 100)
	for i := range waits {
		waits[i] = wait("a", time.Duration(1+i), &lease{key: strconv.Itoa(i)})
		s.Add(waits[i])
	}
	rand.Shuffle(len(waits), func(i, j int) { waits[i], waits[j] = waits[j], waits[i] })
	a := &lease{key: "a"}
	for i, w := range waits {
		completes := wait(w.Held[0].Key(), 0, a)
		if victims := s.Add(completes); len(victims) != 1 || victims[0] != w {
			t.Fatalf("after %d waits: %v give up, want the wait of %s", i, victims, completes.Key)
		}
		s.Finish(completes)
		s.Finish(completes)
		s.Finish(w)
	}
	if victims := s.Add(wait("0", 0, a)); victims != nil {
		t.Errorf("all waits are over, and %v give up", victims)
	}
}
