package redistest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// parentEnv makes this test binary a process that starts a server and waits to
// be killed.
const parentEnv = "MEGA_TEST_PARENT"

// runParent returns at once in the test binary itself.
func runParent() {
	if os.Getenv(parentEnv) == "" {
		return
	}
	s, err := redistest.New(redistest.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = fmt.Fprintln(os.Stdout, s.PID(), s.Dir())
	select {}
}

// A test binary that is killed runs no cleanup; its servers end all the same.
func TestServerDoesNotOutliveAKilledTest(t *testing.T) {
	out, stdout, err := os.Pipe()
	must(t, err)
	defer func() { _ = out.Close() }()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"=1")
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	parent, err := redistest.StartProcess(cmd)
	must(t, err)
	must(t, stdout.Close())
	defer func() { _ = parent.Kill() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	pid, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	defer func() { _ = os.RemoveAll(dir) }()
	if !isRedis(pid) {
		t.Fatalf("process %s is no redis-server", pid)
	}
	must(t, parent.Kill())
	waitFor(t, "the server to end", func() bool { return !isRedis(pid) })
}

// isRedis reports whether the process is a server that runs.
func isRedis(pid string) bool {
	if _, err := strconv.Atoi(pid); err != nil {
		return false
	}
	command, err := os.ReadFile("/proc/" + pid + "/cmdline") // empty once it is dead
	return err == nil && strings.Contains(string(command), "redis-server")
}
