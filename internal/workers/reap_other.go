//go:build !linux

package workers

import "log/slog"

// Reap does nothing: containers run on Linux.
func Reap(*slog.Logger) (end func()) { return func() {} }
