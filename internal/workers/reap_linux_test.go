package workers

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOrphansAreReapedAndChildrenAreNot(t *testing.T) {
	out, err := exec.Command(os.Args[0], "reap").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// reapHere makes this process the parent of its orphans, as the first process of a
// container is.
func reapHere() {
	fail := func(what ...any) {
		fmt.Println(what...)
		os.Exit(1)
	}
	if Reap(slog.Default()); isSubreaper() {
		fail("it is a subreaper already")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil || !isSubreaper() {
		fail("subreaper:", err)
	}
	end := reap(slog.Default(), 50*time.Millisecond)
	child := exec.Command("sh", "-c", "exit 3") // waited for long after its death
	if err := child.Start(); err != nil {
		fail(err)
	}
	for range 3 {
		wait, release, err := os.Pipe() // the orphan lives until release is closed
		if err != nil {
			fail(err)
		}
		cmd := exec.Command("sh", "-c", "(read line <&3; exit 5) >/dev/null 2>&1 & echo $!")
		cmd.ExtraFiles = []*os.File{wait}
		out, err := cmd.Output()
		if err != nil {
			fail(err)
		}
		orphan, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			fail(err)
		}
		if _, parent := stateOf(orphan); parent != os.Getpid() {
			fail("the parent of the orphan is", parent)
		}
		_, _ = release.Close(), wait.Close()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if state, _ := stateOf(orphan); state == 0 {
				break
			}
			if time.Now().After(deadline) {
				fail("the orphan is left")
			}
		}
	}
	if err := child.Wait(); child.ProcessState.ExitCode() != 3 {
		fail("the child's exit status was taken:", err)
	}
	end()
	fmt.Println("done")
}
