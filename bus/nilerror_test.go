package bus_test

import (
	"context"
	"io/fs"
	"testing"
	"testing/synctest"

	"github.com/megaframework/mega/bus"
)

// A nil pointer in an error is a frequent mistake of Go programs, and its
// methods panic.
func TestAHandlerThatReturnsANilPointer(t *testing.T) {
	var none *fs.PathError
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		s := subscribe(t, b, "a", func(context.Context, *bus.Msg) error { return none })
		publish(t, b, "a", "")
		publish(t, b, "a", "")
		synctest.Wait()
		if st := s.Stats(); st.Handled != 2 || st.Failed != 2 || st.Panicked != 2 {
			t.Errorf("got %+v", st)
		}
	})
}
