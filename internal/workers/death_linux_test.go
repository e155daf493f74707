package workers

import (
	"syscall"
	"testing"
)

func TestStoppedWorkerEndsWhenItsSupervisorIsKilled(t *testing.T) {
	cmd, a, b := supervisorApart(t)
	t.Cleanup(func() {
		_ = syscall.Kill(a, syscall.SIGKILL) // it has ended, unless the test failed
	})
	if err := syscall.Kill(a, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "the end of both workers", func() bool { return !alive(a) && !alive(b) })
}
