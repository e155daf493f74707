package suite

import (
	"bytes"
	"context"
	"crypto/rand"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// watchGoroutines returns a function that returns an error with the new
// goroutines, if there are any. Goroutines of the background functions do not
// count.
func watchGoroutines(background []string) func() error {
	options := []goleak.Option{goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("testing/synctest.Test")}
	for _, f := range background {
		options = append(options, goleak.IgnoreAnyFunction(f))
	}
	return func() (err error) {
		for range 3 { // each attempt checks repeatedly for about a second
			if err = goleak.Find(options...); err == nil {
				break
			}
		}
		return err
	}
}

// labelled runs f and returns the stacks of the goroutines that f has started,
// directly or indirectly, and that do not end within five seconds. It identifies
// them by a label that a goroutine inherits from its creator, so that other
// cases may run at the same time. A goroutine that a timer starts has no label;
// a check at the end of the package's tests covers it.
func labelled(background []string, f func()) (left string) {
	id := rand.Text()
	pprof.Do(context.Background(), pprof.Labels("suite", id), func(context.Context) { f() })
	// A look stops the whole process, so the pauses grow.
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		if left = withLabel(id, background); left == "" || pause > 3*time.Second {
			return left
		}
		time.Sleep(pause)
	}
}

// withLabel returns the stacks of the goroutines that have the label and do not
// belong to the background.
func withLabel(id string, background []string) string {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // a write to a buffer cannot fail
	var found []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		inBackground := func(f string) bool { return strings.Contains(stack, f+"+") }
		if strings.Contains(stack, id) && !slices.ContainsFunc(background, inBackground) {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}
