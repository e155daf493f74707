package systemd

import (
	"testing"
	"time"
)

func TestLongWatchdogTimeoutDoesNotOverflow(t *testing.T) {
	for _, usec := range []string{"9223372036854776", "9223372036854775807"} {
		if got := every(map[string]string{envEvery: usec}); got < 100*365*24*time.Hour {
			t.Errorf("WATCHDOG_USEC=%s: a sign of life every %v", usec, got)
		}
	}
}
