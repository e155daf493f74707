//go:build linux || darwin

package rendezvous

import (
	"testing"
	"time"
)

// Hundreds of processes wait for one hub: together they must not take the processor that
// the hub needs. A short wait costs little, and a long one few attempts.
func TestProcessesThatWaitForAHubTryLessAndLessOften(t *testing.T) {
	tries, waited := 0, time.Duration(0)
	for pause := firstPause; waited < 5*time.Second; pause = longer(pause) {
		waited += time.Millisecond + pause/2 // on average
		tries++
		if tries == 3 && waited > 30*time.Millisecond {
			t.Errorf("the third pause ends after %v", waited)
		}
		if tries > 3 && pause > waited {
			t.Errorf("a pause of %v after %v", pause, waited)
		}
	}
	if tries > 60 {
		t.Errorf("%d attempts in 5 s", tries)
	}
}
