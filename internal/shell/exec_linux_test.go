package shell

import (
	"os"
	"path/filepath"
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

func number(s string) int {
	n, _ := strconv.Atoi(s) // a name in /proc
	return n
}
