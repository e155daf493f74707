// Package otheruser runs parts of a test that root runs as another user.
package otheruser

import (
	"runtime"
	"syscall"
	"testing"
)

// Nobody is the number of a user without files and permissions.
const Nobody = 65534

// Do calls fn as the user uid, on a goroutine of its own. Only its thread changes the
// user, and the thread ends with it: fn must not start goroutines that need the user, and
// must not end the test. A test that root does not run can only use its own uid.
func Do(tb testing.TB, uid int, fn func()) {
	tb.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // until the thread ends with this goroutine
		if _, _, failed := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); failed != 0 {
			done <- failed
			return
		}
		fn()
		done <- nil
	}()
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}
