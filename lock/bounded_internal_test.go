package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestBoundedEnds ends the context of a driver's call in each way, before and
// after something waits for its end.
func TestBoundedEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(b *bounded, parent, closing context.CancelFunc)
		want error
	}{
		"by its parent":   {func(_ *bounded, parent, _ context.CancelFunc) { parent() }, context.Canceled},
		"by Close":        {func(_ *bounded, _, closing context.CancelFunc) { closing() }, context.Canceled},
		"at its deadline": {func(*bounded, context.CancelFunc, context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		"with the call":   {func(b *bounded, _, _ context.CancelFunc) { b.end() }, context.Canceled},
	} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, endParent := context.WithCancel(context.Background())
				defer endParent()
				closing, close := context.WithCancel(context.Background())
				defer close()
				b := &bounded{parent: parent, closing: closing, until: time.Now().Add(time.Second)}
				defer b.end()
				if waits {
					b.Done()
				}
				if err := b.Err(); err != nil {
					t.Fatalf("%s: the context has ended before: %v", name, err)
				}
				c.end(b, endParent, close)
				<-b.Done()
				if err := b.Err(); !errors.Is(err, c.want) {
					t.Errorf("%s: the context ends with %v, want %v", name, err, c.want)
				}
			})
		}
	}
}

func TestBoundedHasTheEarlierDeadlineAndTheValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		until := time.Now().Add(time.Second)
		parent, cancel := context.WithDeadline(context.WithValue(context.Background(), key{}, 1), until.Add(time.Second))
		defer cancel()
		b := &bounded{parent: parent, until: until}
		defer b.end()
		if d, ok := b.Deadline(); !ok || !d.Equal(until) {
			t.Errorf("the deadline is %v, want %v", d, until)
		}
		b.until = until.Add(time.Hour)
		if d, ok := b.Deadline(); !ok || !d.Equal(until.Add(time.Second)) {
			t.Errorf("the deadline is %v, want that of the parent", d)
		}
		if d, ok := (&bounded{parent: context.Background()}).Deadline(); ok {
			t.Errorf("a call without a bound has the deadline %v", d)
		}
		if b.Value(key{}) != 1 {
			t.Error("the values of the parent are missing")
		}
		derived, cancel := context.WithCancel(b)
		defer cancel()
		b.end()
		<-derived.Done()
	})
}
