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

// runExec runs the only command of this process under a lease. The error is a Status
// if the command has run.
func runExec(p Process, o Order, command []string) error {
	l, err := newLauncher(p, o, command, Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	if err != nil {
		return err
	}
	l.alone = true
	return l.exec()
}

// Exec runs a command under a lease, for a process that runs several commands at
// once. The end of ctx ends the wait for the lease. A command that has started gets
// SIGTERM when ctx ends, and SIGKILL after o.Grace. The error is a Status if the
// command has run.
func Exec(ctx context.Context, p Process, o Order, command []string, stdio Stdio) error {
	if err := o.Check(p.Environ); err != nil {
		return err
	}
	l, err := newLauncher(p, o, command, stdio)
	if err != nil {
		return err
	}
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			l.signals <- syscall.SIGTERM
		case <-over:
			return
		}
		select {
		case <-time.After(o.Grace):
			l.signals <- syscall.SIGKILL
		case <-over:
		}
	}()
	err = l.exec()
	close(over)
	<-watched
	return err
}

func newLauncher(p Process, o Order, command []string, stdio Stdio) (*launcher, error) {
	path, err := stdio.Find(command[0])
	if err != nil {
		return nil, err
	}
	o.Owner = os.Getpid()
	if o.Label == "" {
		o.Label = commandLabel(command[0])
	}
	return &launcher{p: p, order: o, path: path, command: command, stdio: stdio, signals: make(chan os.Signal, 16)}, nil
}

// commandLabel returns the label of a command: its name, as far as it is valid in
// a label.
func commandLabel(command string) string {
	name := plain.Line(filepath.Base(command))
	return strings.ToValidUTF8(name[:min(len(name), 64)], "")
}

// exec runs the command under the lease.
func (l *launcher) exec() error {
	if err := l.startHolder("holder", l.order); err != nil {
		return &Error{Code: "cli.failed", Exit: ExitUnavailable, Text: fmt.Sprintf("Cannot start the holder of the lease: %v.", err)}
	}
	if l.alone {
		l.notifySignals() // while the holder starts; an earlier signal ends both processes
	}
	defer l.close()
	g, err := l.await(granted)
	if err == nil {
		_ = l.messages.Encode(message{Start: true}) // if the holder has ended, its last report is the error
		_, err = l.await(going)
	}
	if err != nil {
		return err
	}
	return l.run(g)
}

// startHolder starts the process that holds the lease, with a hidden verb, and
// sends it order (X4). It starts a goroutine that ends with the holder.
func (l *launcher) startHolder(verb string, order any) error {
	holderIn, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	reports, holderOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, holderIn.Close(), pipe.Close())
	}
	cmd, err := l.p.selfCommand(verb)
	if err == nil {
		cmd.Stdin, cmd.Stdout = holderIn, holderOut
		if l.order.Init+l.order.Cleanup != "" {
			cmd.Stderr = os.Stderr
		}
		err = cmd.Start()
	}
	started := err == nil
	err = errors.Join(err, holderIn.Close(), holderOut.Close())
	if err == nil {
		l.pipe, l.messages = pipe, json.NewEncoder(pipe)
		err = l.messages.Encode(order)
	}
	if err != nil {
		err = errors.Join(err, pipe.Close(), reports.Close())
		if started {
			go func() { _ = cmd.Wait() }() // without an order the holder ends
		}
		return err
	}
	l.reports = make(chan report, 4)
	go func() {
		defer close(l.reports)
		d := json.NewDecoder(reports)
		for {
			var r report
			if d.Decode(&r) != nil {
				break
			}
			l.reports <- r
		}
		_ = reports.Close()
		_ = cmd.Wait() // the holder has closed its output, so it ends
	}()
	return nil
}

// selfCommand returns a command that starts this program with a hidden verb, in a
// session of its own.
func (p *Process) selfCommand(verb ...string) (*exec.Cmd, error) {
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
