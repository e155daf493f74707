package supervisor

import "syscall"

// wakes has the system continue a worker when its supervisor has died: one that
// was stopped would not see that its line has ended, and hold on to its listeners
// for ever. The signal comes when the thread has ended that started the worker,
// and again with the one after it; to a worker that runs it is nothing.
func wakes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGCONT} }
