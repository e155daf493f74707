package lock

import (
	"math/rand/v2"
	"testing"
)

func TestTheHeapGivesTheEarliestWhateverWasRemoved(t *testing.T) {
	var hs holds
	var all []*hold
	for range 1000 {
		switch h := (&hold{index: -1, next: instant(rand.N(100))}); rand.N(3) {
		case 0:
			if len(hs) > 0 {
				hs.remove(hs[rand.N(len(hs))])
			}
		case 1:
			if len(hs) > 0 {
				moved := hs[rand.N(len(hs))]
				moved.next = instant(rand.N(100))
				hs.fix(moved)
			}
		default:
			hs.push(h)
			hs.fix(h)
			all = append(all, h)
		}
		for i, h := range hs {
			if h.index != i || hs[0].next > h.next {
				t.Fatalf("hold %d has index %d and next %d, the first has %d", i, h.index, h.next, hs[0].next)
			}
		}
	}
	in := 0
	for _, h := range all {
		if h.index >= 0 {
			in++
		}
	}
	if in != len(hs) {
		t.Errorf("%d holds believe they are in a heap of %d", in, len(hs))
	}
}

func TestHeapGivesItsRoomBackAfterAPeak(t *testing.T) {
	var hs holds
	for i := range 200_000 {
		hs.push(&hold{next: instant(i)})
		hs.fix(hs[i])
	}
	for len(hs) > 0 {
		hs.remove(hs[len(hs)/2])
		if len(hs) > 1 && hs[0].next > hs[1].next {
			t.Fatal("the order is lost")
		}
	}
	if cap(hs) > 8*roomy {
		t.Errorf("the empty heap has room for %d", cap(hs))
	}
}
