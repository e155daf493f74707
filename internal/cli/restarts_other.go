//go:build !unix

package cli

import "os"

func catchRestarts(chan<- os.Signal) {}

// restarts returns no channel: this system has no signal for a restart.
func restarts() (<-chan os.Signal, func()) { return nil, func() {} }
