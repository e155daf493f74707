package workers

import (
	"syscall"
	"testing"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func TestStoppedWorkerEndsWhenItsSupervisorIsKilled(t *testing.T) {
	cmd, a, b := supervisorApart(t)
	t.Cleanup(func() {
		_ = redistest.Signal(a, syscall.SIGKILL) // it has ended, unless the test failed
	})
	if err := redistest.Signal(a, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "the end of both workers", func() bool { return !alive(a) && !alive(b) })
}
