package boxes

import "testing"

// at returns the events with the times 1, 2 and so on.
func at(events ...event) []event {
	for i := range events {
		events[i].At = int64(i + 1)
	}
	return events
}

func does(what step, fence uint64) event { return event{Step: what, Fence: fence} }

func late(e event) event { e.Late = true; return e }

func TestJudgeFindsEachWrongOrder(t *testing.T) {
	for _, test := range []struct {
		name   string
		events []event
		ok     bool
	}{
		{"a new slot", at(does(cleaning, 1), does(cleaned, 1), does(preparing, 1), does(prepared, 1)), true},
		{"a new slot that is not cleaned", at(does(preparing, 1)), false},
		{"a slot that was handed back", at(
			does(cleaning, 1), does(cleaned, 1), does(preparing, 1), does(cleaning, 1), does(cleaned, 1), does(preparing, 2)), true},
		{"a slot whose holder died in Init", at(does(cleaning, 1), does(cleaned, 1), does(preparing, 1), does(preparing, 2)), false},
		{"a slot whose holder died in Cleanup", at(
			does(cleaning, 1), does(cleaned, 1), does(preparing, 1), does(cleaning, 1), does(preparing, 2)), false},
		{"a Cleanup of its last holder, after its loss", at(
			does(cleaning, 1), does(cleaned, 1), does(preparing, 1), does(lost, 1), does(cleaning, 1)), false},
		{"a Cleanup of its last holder beside the next one", at(
			does(cleaning, 1), does(cleaned, 1), does(preparing, 1), does(cleaning, 2), does(cleaned, 2), does(cleaning, 1)), false},
		{"the end of a Cleanup that was cut by the loss", at(
			does(cleaning, 1), does(cleaning, 2), does(cleaned, 2), does(cleaned, 1), does(preparing, 2)), true},
		{"an Init after a Cleanup that the last holder ended", at(
			does(cleaning, 1), does(cleaning, 2), does(cleaned, 1), does(preparing, 2)), false},
		{"two Inits at once", at(
			does(cleaning, 1), does(cleaned, 1), does(preparing, 1), does(cleaning, 2), does(preparing, 2)), false},
		{"a holder that stood still", at(
			does(cleaning, 1), does(cleaned, 1), does(cleaning, 2), does(cleaned, 2), late(does(preparing, 1)), does(preparing, 2)), true},
		{"a Cleanup of a holder that stood still and knows of its loss", at(
			does(cleaning, 1), does(cleaned, 1), does(preparing, 1), does(lost, 1), late(does(cleaning, 1))), false},
		{"a box in use", at(
			does(cleaning, 1), does(cleaned, 1), does(preparing, 1), event{Step: prepared, Fence: 1, Err: "it is not empty"}), false},
	} {
		if _, err := judge(test.events); (err == nil) != test.ok {
			t.Errorf("%s: %v, want ok = %v", test.name, err, test.ok)
		}
	}
}
