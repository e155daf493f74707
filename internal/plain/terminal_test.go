package plain_test

import (
	"io"
	"os"
	"testing"

	"github.com/megaframework/mega/internal/plain"
)

func TestColoursAreForATerminalWhoseUserWantsThem(t *testing.T) {
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = device.Close() }()
	for _, c := range []struct {
		w             io.Writer
		noColor, term string
		want          bool
	}{
		{device, "", "xterm", true},
		{device, "", "", true},
		{device, "", "dumb", false},
		{device, "1", "xterm", false},
		{io.Discard, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		if got := plain.Colours(c.w); got != c.want {
			t.Errorf("%T, NO_COLOR=%s, TERM=%s: got %t, want %t", c.w, c.noColor, c.term, got, c.want)
		}
	}
}
