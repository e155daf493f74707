package shell

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openPTY returns the two ends of a terminal.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// inTerminal runs a shell script in a session with a terminal. The end of the
// test hangs the terminal up.
func (p *place) inTerminal(text string) (s *script, master *os.File) {
	p.t.Helper()
	master, slave := openPTY(p.t)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sh", "-c", text)
	cmd.Env = append(p.environ(), "PROGRAM="+os.Args[0], "DIR="+p.dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = slave.Close()
	s = &script{t: p.t, out: listen(master)}
	p.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return s, master
}

func send(t *testing.T, terminal *os.File, text string) {
	t.Helper()
	if _, err := terminal.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestCommandHasTheTerminal(t *testing.T) { // X3
	p := newPlace(t)
	s, terminal := p.inTerminal(`set -m
$PROGRAM exec k -- $PROGRAM work $DIR 1h
echo status=$?
read line
fg
echo done=$?
`)
	pid := s.runs()
	inFront := func() bool {
		group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
		return err == nil && group == pid
	}
	p.until("the command is in the foreground", inFront)
	send(t, terminal, "\x1a")
	s.expect("status=14") // SIGTSTP, 20, or SIGSTOP, 19
	if inFront() {
		t.Error("the stopped command has the terminal")
	}
	if state, err := p.locks().Inspect(t.Context(), "k"); err != nil || len(state.Holders) != 1 {
		t.Errorf("the stopped command has lost its lease: %+v, %v", state, err)
	}
	send(t, terminal, "go\n")
	s.expect("signal continued")
	p.until("the command is in the foreground again", inFront)
	send(t, terminal, "\x03")
	s.expect("signal interrupt foreground true")
	s.expect("done=130")
}

// X3: the shell sees that the job needs the terminal, and fg continues it.
func TestCommandThatReadsFromTheBackgroundStopsItsJob(t *testing.T) {
	for name, outer := range map[string]string{"one": "", "nested": "$PROGRAM exec outer -- "} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			s, terminal := p.inTerminal(`set -m
` + outer + `$PROGRAM exec k -- sh -c 'read line; echo got $line' &
until jobs >$DIR/jobs; grep -q Stopped $DIR/jobs; do sleep 0.02; done
echo it is stopped
fg
echo done=$?
`)
			s.expect("it is stopped")
			send(t, terminal, "hello\n")
			s.expect("got hello")
			s.expect("done=0")
		})
	}
}
