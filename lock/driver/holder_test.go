package driver

import "testing"

func TestHolderIsASentence(t *testing.T) {
	for want, h := range map[string]Holder{
		"an unknown process":           {},
		"an unknown process (a label)": {Label: "a label"},
		"pid 42":                       {PID: 42},
		"host-1, pid 42":               {Host: "host-1", PID: 42},
		`app "web" on host-1, worker 2, pid 42 (nightly)`: {App: "web", Host: "host-1", Worker: 2, PID: 42, Label: "nightly"},
		"host-1, worker 2, pid 42":                        {Host: "host-1", Worker: 2, PID: 42},
	} {
		if got := h.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
