package cli

import "testing"

// A program may get any number of hangups. Each receiver of a signal stays.
func TestTheReaderOfTheLogIsOutlivedOnce(t *testing.T) {
	var h signalHandler
	h.outliveLogReader()
	if n := testing.AllocsPerRun(100, h.outliveLogReader); n > 0 {
		t.Errorf("each further signal costs %v allocations", n)
	}
}
