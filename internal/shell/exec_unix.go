//go:build linux || darwin

package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/megaframework/mega/internal/plain"
)

// runExec runs the command of a process that has no other. The error is a Status
// if the command has run.
func runExec(p Process, o Order, command []string) error {
	f, err := newFront(p, o, command, Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	if err != nil {
		return err
	}
	f.alone = true
	return f.exec()
}

// Exec runs a command under a lease, for a process that runs several at once.
// The end of ctx ends the wait. If the command has begun, it gets SIGTERM then,
// and SIGKILL after the grace. The error is a Status if the command has run.
func Exec(ctx context.Context, p Process, o Order, command []string, stdio Stdio) error {
	if err := o.Check(p.Environ); err != nil {
		return err
	}
	f, err := newFront(p, o, command, stdio)
	if err != nil {
		return err
	}
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			f.signals <- syscall.SIGTERM
		case <-over:
			return
		}
		select {
		case <-time.After(o.Grace):
			f.signals <- syscall.SIGKILL
		case <-over:
		}
	}()
	err = f.exec()
	close(over)
	<-watched
	return err
}

func newFront(p Process, o Order, command []string, stdio Stdio) (*front, error) {
	path, err := stdio.Find(command[0])
	if err != nil {
		return nil, err
	}
	o.Front = os.Getpid()
	if o.Label == "" {
		o.Label = commandLabel(command[0])
	}
	return &front{p: p, order: o, path: path, command: command, stdio: stdio, signals: make(chan os.Signal, 16)}, nil
}

// commandLabel returns the label of a command: its name, as far as it is valid in
// a label.
func commandLabel(command string) string {
	name := plain.Line(filepath.Base(command))
	return strings.ToValidUTF8(name[:min(len(name), 64)], "")
}

// exec runs the command under the lease.
func (f *front) exec() error {
	if err := f.startHolder("holder", f.order); err != nil {
		return &Error{Code: "cli.failed", Exit: ExitUnavailable, Text: fmt.Sprintf("Cannot start the holder of the lease: %v.", err)}
	}
	if f.alone {
		f.listen() // while the holder starts: a signal before it ends both
	}
	defer f.leave()
	g, err := f.await(granted)
	if err == nil {
		_ = f.words.Encode(word{Start: true}) // if the holder has ended, its last report is the error
		_, err = f.await(going)
	}
	if err != nil {
		return err
	}
	return f.run(g)
}

// startHolder starts the process that holds the lease, by a hidden verb, and
// gives it its order (X4).
func (f *front) startHolder(verb string, order any) error {
	ear, words, err := os.Pipe()
	if err != nil {
		return err
	}
	reports, mouth, err := os.Pipe()
	if err != nil {
		return errors.Join(err, ear.Close(), words.Close())
	}
	cmd, err := f.p.again(verb)
	if err == nil {
		cmd.Stdin, cmd.Stdout = ear, mouth
		if f.order.Init+f.order.Cleanup != "" {
			cmd.Stderr = os.Stderr
		}
		err = cmd.Start()
	}
	started := err == nil
	err = errors.Join(err, ear.Close(), mouth.Close())
	if err == nil {
		f.ear, f.words = words, json.NewEncoder(words)
		err = f.words.Encode(order)
	}
	if err != nil {
		err = errors.Join(err, words.Close(), reports.Close())
		if started {
			go func() { _ = cmd.Wait() }() // it ends now, without an order
		}
		return err
	}
	f.reports = make(chan report, 4)
	go func() {
		defer close(f.reports)
		d := json.NewDecoder(reports)
		for {
			var r report
			if d.Decode(&r) != nil {
				break
			}
			f.reports <- r
		}
		_ = reports.Close()
		_ = cmd.Wait() // it ends now: the pipe is closed
	}()
	return nil
}

// again returns a command that starts this program with a hidden verb, in a
// session of its own.
func (p *Process) again(verb ...string) (*exec.Cmd, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.Args = append(append([]string{p.Name}, p.Verbs...), verb...)
	cmd.Env = p.Environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}
