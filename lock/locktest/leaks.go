package locktest

import (
	"bytes"
	"context"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// watchGoroutines returns a function that says which goroutines are new.
func (h Harness) watchGoroutines() func() error {
	options := []goleak.Option{goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("testing/synctest.Test")}
	for _, f := range h.Background {
		options = append(options, goleak.IgnoreAnyFunction(f))
	}
	return func() (err error) {
		for range 3 { // each looks again and again for about a second
			if err = goleak.Find(options...); err == nil {
				break
			}
		}
		return err
	}
}

// labelled runs f and returns the stacks of the goroutines that it has started,
// and those of theirs, which do not end within seconds. It tells them from
// others by a label, which a goroutine has from the one that starts it, so
// that other cases may run at the same time. What a timer starts has none:
// that is for a check at the end of the package's tests.
func (h Harness) labelled(f func()) (left string) {
	id := token()
	pprof.Do(context.Background(), pprof.Labels("locktest", id), func(context.Context) { f() })
	for range 300 {
		if left = h.withLabel(id); left == "" {
			return ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}

// withLabel returns the stacks of the goroutines that have the label and do not
// belong to the harness.
func (h Harness) withLabel(id string) string {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // a buffer takes everything
	var found []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		inHarness := func(f string) bool { return strings.Contains(stack, f+"+") }
		if strings.Contains(stack, id) && !slices.ContainsFunc(h.Background, inHarness) {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}
