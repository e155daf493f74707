package scaffold

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// complete runs the go command to complete go.mod and write go.sum. It succeeds
// where go mod tidy fails: without a network, tidy often lacks a module that only
// the tests of another module use.
func complete(ctx context.Context, dir string) (tidy bool, err error) {
	if err := goCommand(ctx, dir, "mod", "tidy"); err == nil {
		return true, nil
	}
	return false, goCommand(ctx, dir, "list", "-mod=mod", "-deps", "-test", "./...", "tool")
}

// goCommand runs the go command in dir without a workspace, because the
// application must build alone.
func goCommand(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second // a git that go has started keeps stderr open after the end of go
	if err := cmd.Run(); err != nil {
		reason := strings.TrimSpace(stderr.String()) // "" if there is no go command
		if reason != "" {
			reason = "\n" + reason
		}
		return fmt.Errorf("%w: go %s: %w%s", ErrModules, strings.Join(args, " "), err, reason)
	}
	return nil
}
