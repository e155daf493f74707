package suite

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
		background := []string{"suite.lingerInBackground"}
		left := labelled(background, func() {
			go lingerInBackground(stop)
			go func() { go lingerInCase(stop) }() // its starter has ended
		})
		if strings.Count(left, "suite.linger") != 1 || !strings.Contains(left, "suite.lingerInCase") {
			t.Errorf("found %q, want the goroutine of the case alone", left)
		}
		if left = labelled(background, func() { go func() {}() }); left != "" {
			t.Errorf("a function that left nothing behind left %q", left)
		}
	})
}

func lingerBeside(stop <-chan struct{})       { <-stop }
func lingerInBackground(stop <-chan struct{}) { <-stop }
func lingerInCase(stop <-chan struct{})       { <-stop }
