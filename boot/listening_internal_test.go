package boot

import (
	"slices"
	"testing"
)

// The end of a program that has several of the addresses frees all of them.
func TestActionsAboutSeveralProgramsAreJoined(t *testing.T) {
	first := []string{"Stop it:          kill 7", "Restart workers:  kill -USR2 7", "See who has it:   ss -ltnp"}
	second := []string{"Stop it:          kill 9", "Restart workers:  kill -USR2 9"}
	both := joined(second, first)
	if want := []string{"Stop it:          kill 7 9", "Restart workers:  kill -USR2 7 9", "See who has it:   ss -ltnp"}; !slices.Equal(both, want) {
		t.Errorf("got %q", both)
	}
	if again := joined(second, both); !slices.Equal(again, both) {
		t.Errorf("a third address of the second program: %q", again)
	}
	ended := []string{"Wait longer:  set boot.wait_for", "End the worker:  kill -KILL 11"}
	if all := joined(ended, both); !slices.Equal(all, slices.Concat(ended, both)) {
		t.Errorf("got %q", all)
	}
}
