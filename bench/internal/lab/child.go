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
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProcess(self, role)
}

func startProcess(program, role string) (*child, error) {
	cmd := exec.Command(program, role)
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
		return nil, fmt.Errorf("start a %s: %w", role, err)
	}
	return &child{p, stdin, stdout}, nil
}

// Call starts a copy of this program in a role, sends it order, and decodes its
// answer, both of which are JSON. The process ends with the call, and with ctx.
// The system loads a copy into other pages of memory than the program itself.
func Call(ctx context.Context, role string, order, answer any) (err error) {
	program, err := copySelf()
	if err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(program)) }()
	c, err := startProcess(program, role)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	defer context.AfterFunc(ctx, func() { _ = c.Stop() })()
	if err := json.NewEncoder(c.in).Encode(order); err != nil {
		return errors.Join(fmt.Errorf("order: %w", err), ctx.Err())
	}
	if err := json.NewDecoder(c.out).Decode(answer); err != nil {
		return errors.Join(fmt.Errorf("read the answer: %w", err), ctx.Err())
	}
	return nil
}

// copySelf copies this program to a temporary file.
func copySelf() (name string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	from, err := os.Open(self)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	to, err := os.CreateTemp("", "bench")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Chmod(0o700), to.Close()); err != nil {
		return "", errors.Join(err, os.Remove(to.Name()))
	}
	return to.Name(), nil
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
