package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// child is a process of this program that plays a role. It ends with its input.
type child struct {
	process *redistest.Process
	in      io.WriteCloser
	out     io.Reader
}

func start(role string) (*child, error) {
	c, err := startProcess(role)
	if err != nil {
		return nil, fmt.Errorf("start a %s: %w", role, err)
	}
	return c, nil
}

func startProcess(role string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, role)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		return nil, err
	}
	return &child{p, stdin, stdout}, nil
}

// Call starts this program in a role, sends it order, and decodes its answer, both
// of which are JSON. The process ends with the call, and with ctx.
func Call(ctx context.Context, role string, order, answer any) (err error) {
	c, err := start(role)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	defer context.AfterFunc(ctx, func() { _ = c.Stop() })()
	if err := json.NewEncoder(c.in).Encode(order); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	if err := json.NewDecoder(c.out).Decode(answer); err != nil {
		return errors.Join(fmt.Errorf("read the answer: %w", err), ctx.Err())
	}
	return nil
}

// Stop ends the process and waits for it.
func (c *child) Stop() error {
	_ = c.in.Close()
	select {
	case <-c.process.Done():
		return c.process.Wait()
	case <-time.After(5 * time.Second):
		return c.process.Kill()
	}
}

// Kill ends the process with SIGKILL.
func (c *child) Kill() error { return c.process.Kill() }
