//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// catchRestarts makes a worker catch the supervisor's restart signal, which
// would otherwise end the worker.
func catchRestarts(signals chan<- os.Signal) { signal.Notify(signals, syscall.SIGUSR2) }

// restarts returns a channel of the signals that request new workers.
func restarts() (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
	return signals, func() { signal.Stop(signals) }
}
