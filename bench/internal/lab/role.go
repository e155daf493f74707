package lab

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Role is the work of this program when it has started itself. It ends with its
// input.
type Role func(ctx context.Context, in io.Reader, out io.Writer) error

// Played plays the role that the first argument of this process names, and
// reports whether it names one. A role that fails ends the process.
func Played(ctx context.Context, roles map[string]Role) bool {
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		return false
	}
	if err := roles[os.Args[1]](ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	return true
}
