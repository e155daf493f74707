package workers

import "syscall"

// continueAtParentDeath makes the system continue a worker when its supervisor dies. A stopped
// worker would not see the end of its line, and would keep its listeners open
// for ever. The system sends the signal when the thread that started the worker
// ends, and again when the thread that follows it ends. A running worker
// ignores the signal.
func continueAtParentDeath() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGCONT}
}
