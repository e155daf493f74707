package shell

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func TestCommandDiesWithTheHolder(t *testing.T) {
	p := newPlace(t)
	s := p.start("exec k -- "+os.Args[0]+" work", p.dir, "1h")
	pid := s.runs()
	l := p.locks()
	holder := 0
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range processes {
		stat, _ := os.ReadFile(path)
		fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:])) // state, parent, group
		if one := number(strings.Split(path, "/")[2]); len(fields) > 3 && fields[1] == itoa(s.PID()) && one != pid {
			holder = one
		}
	}
	if err := redistest.Signal(holder, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out, status := s.rest(); status != ExitLost || !strings.Contains(out, "its holder has ended") {
		t.Errorf("exit status %d: %s", status, out)
	}
	p.unused(l, "k")
}

// A launcher may be killed between the start of its command and its report of the group.
// Then the system kills the first process of the command only.
func TestCommandThatWasNotReportedIsKilled(t *testing.T) { // X5
	p := newPlace(t)
	lease, err := memoryLocks(t).Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release() }()
	start := func(slot int, how *syscall.SysProcAttr) int {
		command := exec.CommandContext(t.Context(), os.Args[0], "work", p.dir, "1h")
		command.Env, command.SysProcAttr = runEnviron(p.environ(), "k", lease.Fence(), slot, lease.Token()), how
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it runs
			t.Fatal(err)
		}
		return command.Process.Pid
	}
	member := start(0, &syscall.SysProcAttr{Setpgid: true})
	separate := start(1, &syscall.SysProcAttr{Setsid: true}) // as the holder of a lease within the command
	session, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{messages: make(chan message), order: Order{TTL: longTime}, session: session}
	close(h.messages)
	if group, err := h.awaitStart(lease); group != 0 || !errors.Is(err, errOwnerGone) {
		t.Errorf("the holder has the group %d, %v", group, err)
	}
	if lives(member) {
		t.Error("the command runs beside the next one")
	}
	if !lives(separate) {
		t.Error("a process of another session was killed")
	}
}

// A script may send a signal to all processes of a name, to reach its commands.
func TestSignalsOfCommandsDoNotEndTheirHelpers(t *testing.T) { // X3
	p := newPlace(t)
	s := p.start("exec k -- "+os.Args[0]+" work", p.dir, "1h")
	s.runs()
	handle, status := p.start("acquire other --max 1h").rest()
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, handle)
	}
	helpers := p.helpers()
	if len(helpers) != 3 { // holder, lease, hub
		t.Fatalf("the helpers are %v", helpers)
	}
	for _, helper := range helpers {
		for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT} {
			if err := redistest.Signal(helper, signal); err != nil {
				t.Error(err)
			}
		}
	}
	if out, status := p.start("release " + handle).rest(); status != 0 {
		t.Errorf("exit status %d: %s", status, out)
	}
	if err := redistest.Signal(s.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if out, status := s.rest(); status != 130 {
		t.Errorf("exit status %d: %s", status, out)
	}
	if left := p.helpers(); len(left) == 0 {
		t.Error("the hub has ended")
	}
}

// helpers returns the processes of hidden verbs that serve the scripts of p.
func (p *place) helpers() (all []int) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range processes {
		line, _ := os.ReadFile(path + "/cmdline")
		environ, _ := os.ReadFile(path + "/environ")
		args := strings.Split(string(line), "\x00")
		if len(args) > 1 && slices.Contains([]string{"holder", "lease", "hub"}, args[1]) && strings.Contains(string(environ), "XDG_RUNTIME_DIR="+p.dir) {
			all = append(all, number(filepath.Base(path)))
		}
	}
	return all
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // a name in /proc
	return n
}
