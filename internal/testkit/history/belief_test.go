package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/testkit/history"
)

func belief(client string, slot int, fence uint64, from, to int64) history.Belief {
	return history.Belief{Client: client, Key: "k", Token: client, Slot: slot, Fence: fence, From: from, To: to}
}

func TestOverlapsAndFencesThatDoNotRiseAreFound(t *testing.T) {
	tests := []struct {
		name    string
		beliefs []history.Belief
		longest time.Duration
		ok      bool
	}{
		{"apart", []history.Belief{belief("a", 0, 1, 0, 10), belief("b", 0, 2, 10, 20)}, 0, true},
		{"overlapping", []history.Belief{belief("a", 0, 1, 0, 10), belief("b", 0, 2, 7, 20)}, 3, false},
		{"one inside the other", []history.Belief{belief("a", 0, 1, 0, 100), belief("b", 0, 2, 7, 20), belief("c", 0, 3, 50, 90)}, 40, false},
		{"other slots", []history.Belief{belief("a", 0, 1, 0, 10), belief("b", 1, 2, 0, 10)}, 0, true},
		{"over before it was known", []history.Belief{belief("a", 0, 1, 0, 10), belief("b", 0, 2, 9, 8)}, 0, true},
		{"a fence that falls", []history.Belief{belief("a", 0, 2, 0, 10), belief("b", 0, 1, 10, 20)}, 0, false},
		{"a fence that stays", []history.Belief{belief("a", 0, 2, 0, 10), belief("b", 0, 2, 10, 20)}, 0, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := history.History{Beliefs: test.beliefs}
			if got := h.LongestOverlap(); got != test.longest {
				t.Errorf("LongestOverlap = %d, want %d", got, test.longest)
			}
			if err := h.CheckBeliefs(0); (err == nil) != test.ok {
				t.Errorf("CheckBeliefs = %v, want ok = %v", err, test.ok)
			}
		})
	}
}

func TestAllowedOverlapPassesAndALongerOneDoesNot(t *testing.T) {
	h := history.History{Beliefs: []history.Belief{belief("a", 0, 1, 0, 10), belief("b", 0, 2, 7, 20)}}
	if err := h.CheckBeliefs(3); err != nil {
		t.Errorf("an overlap of 3, 3 allowed: %v", err)
	}
	if err := h.CheckBeliefs(2); err == nil || !strings.Contains(err.Error(), "two holders for 3ns") {
		t.Errorf("an overlap of 3, 2 allowed: %v", err)
	}
}

func TestLowerFenceIsAllowedAsLongAsAnOverlapIs(t *testing.T) {
	h := history.History{Beliefs: []history.Belief{belief("a", 0, 2, 0, 10), belief("b", 0, 1, 5, 7), belief("c", 0, 3, 20, 30)}}
	if found := h.FenceErrors(6); len(found) != 0 {
		t.Errorf("a fence that fell 5 after a grant, 6 allowed: %v", found)
	}
	if found := h.FenceErrors(5); len(found) != 1 {
		t.Errorf("a fence that fell 5 after a grant, 5 allowed: %v, want one error", found)
	}
}

func TestFenceExceedsTheFencesKnownBeforeItsRequest(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, test := range []struct {
		ops []history.Op
		ok  bool
	}{
		{[]history.Op{grant("a", 1, 2, "A", 5, 9*ms), inSlot(grant("b", 3, 4, "B", 4, 10*ms), 1, 2)}, false},
		{[]history.Op{grant("a", 1, 3, "A", 5, 9), inSlot(grant("b", 3, 4, "B", 4, 9), 1, 2)}, true}, // at once: any order
		{[]history.Op{grant("a", 1, 2, "A", 5, 9), inSlot(grant("b", 3, 4, "B", 6, 9), 1, 2)}, true},
		{[]history.Op{grant("a", 1, 2, "A", 5, 9*ms), inSlot(grant("b", 3, 4, "B", 4, 8*ms), 1, 2)}, true},    // granted before, for a caller that had left
		{[]history.Op{grant("a", 1, 2, "A", 5, 9*ms), inSlot(grant("b", 3, 4, "B", 4, 10*ms-1), 1, 2)}, true}, // at one instant, likewise
		{[]history.Op{grant("a", 1, 2, "A", 5, 9), grant("b", 3, 4, "B", 4, 8)}, false},                       // a plain lock
	} {
		if found := (history.History{Ops: test.ops}).FenceErrors(0); (len(found) == 0) != test.ok {
			t.Errorf("FenceErrors(%v) = %v, want ok = %v", test.ops, found, test.ok)
		}
	}
}
