package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

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
