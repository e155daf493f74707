package limit

import (
	"testing"
	"time"
)

// W12: another call may add a refusal between the look at the clock, or its omission
// because nothing was remembered, and the search.
func TestRefusalOfALaterCallIsNotExtended(t *testing.T) {
	c, err := newCall("k", &Limit{Rates: []Rate{PerSecond(1)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rs := refusals{most: 1}
	rs.add(&c, Result{RetryAfter: time.Second}, nil, instant(time.Hour), 0)
	if r, _, known := rs.find(&c, 0); !known || r.RetryAfter != time.Second {
		t.Errorf("known: %v, retry after %v, want %v", known, r.RetryAfter, time.Second)
	}
}
