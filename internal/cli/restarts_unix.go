//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// hearRestarts has a worker hear the signal that is for its supervisor, which
// would end it otherwise.
func hearRestarts(signals chan<- os.Signal) { signal.Notify(signals, syscall.SIGUSR2) }

// restarts listens for the signal that asks for new workers.
func restarts() (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
	return signals, func() { signal.Stop(signals) }
}
