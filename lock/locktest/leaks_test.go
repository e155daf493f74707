package locktest

import (
	"strings"
	"testing"
	"testing/synctest"
)

func TestLabelledFindsWhatItsFunctionHasLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		defer close(stop)
		go lingerBeside(stop)
		h := Harness{Background: []string{"locktest.lingerInHarness"}}
		left := h.labelled(func() {
			go lingerInHarness(stop)
			go func() { go lingerInCase(stop) }() // its starter has ended
		})
		if strings.Count(left, "locktest.linger") != 1 || !strings.Contains(left, "locktest.lingerInCase") {
			t.Errorf("found %q, want the goroutine of the case alone", left)
		}
		if left = h.labelled(func() { go func() {}() }); left != "" {
			t.Errorf("a function that left nothing behind left %q", left)
		}
	})
}

func lingerBeside(stop <-chan struct{})    { <-stop }
func lingerInHarness(stop <-chan struct{}) { <-stop }
func lingerInCase(stop <-chan struct{})    { <-stop }
