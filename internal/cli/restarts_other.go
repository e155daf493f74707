//go:build !unix

package cli

import "os"

func hearRestarts(chan<- os.Signal) {}

// restarts has no signal to listen for.
func restarts() (<-chan os.Signal, func()) { return nil, func() {} }
