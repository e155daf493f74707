package table

import (
	"errors"
	"fmt"
	"testing"
)

// A shard remembers a bounded number of tokens, the newest ones, each once and for a
// minute (L6, L18).
func TestTheNewestDepartedTokensAreRemembered(t *testing.T) {
	var d departed
	why, again := errors.New("why"), errors.New("again")
	token := func(n int) string { return fmt.Sprint("token", n) }
	for n := range departedMax + 2 {
		d.add(token(n), why, instant(n))
		d.add(token(n), again, instant(n))
	}
	if len(d.order) != departedMax || len(d.why) != departedMax {
		t.Errorf("%d tokens in order, %d with a reason; want %d", len(d.order), len(d.why), departedMax)
	}
	for n, want := range map[int]error{0: nil, 1: nil, 2: why, departedMax + 1: why} {
		if err := d.find(token(n)); err != want {
			t.Errorf("token %d: %v, want %v", n, err, want)
		}
	}
	last := instant(departedMax + 1).add(remembered)
	if next, any := d.purge(last - 1); !any || next != last || len(d.why) != 1 {
		t.Errorf("before the end of the last token %d are left, the next ends at %d", len(d.why), next)
	}
	if _, any := d.purge(last); any || d.order != nil || d.why != nil {
		t.Errorf("after it %d are left", len(d.order))
	}
}
