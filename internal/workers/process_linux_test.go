package workers

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A supervisor may run in a folder that its user cannot enter, as after sudo -u in
// the home of root.
func TestNoWorkerStartsInAFolderThatItsUserCannotEnter(t *testing.T) {
	const nobody = 65534
	dir := t.TempDir()
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o711, dir: 0} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	at := make(chan string)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if os.Geteuid() == 0 {
			_, _ = unix.SetfsuidRetUid(nobody) // root enters any folder
		}
		at <- existing(dir)
	}()
	if got := <-at; got != "" {
		t.Errorf("a worker starts in %q", got)
	}
}
