package e2e_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// The supervisor passes the files that it has read to its workers.
func TestFilesOfAProgramWithWorkersAreReadOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	if err := os.WriteFile(file, []byte("log: {level: info}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if _, err := syscall.InotifyAddWatch(fd, file, syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	c := startWorkers(t, "settings", "2", "MEGA_CONFIG="+file)
	c.await(t, "boot.report", 1)
	c.signal(t, syscall.SIGTERM)
	if status := c.end(t); status != 0 {
		t.Errorf("exit status %d:\n%s", status, c)
	}
	events, opened := make([]byte, 64<<10), 0
	size, _ := syscall.Read(fd, events) // an error means that nobody has opened it
	for at := 0; at < size; opened++ {
		at += syscall.SizeofInotifyEvent + int((*syscall.InotifyEvent)(unsafe.Pointer(&events[at])).Len) //nolint:gosec // the kernel has written it
	}
	if opened != 1 {
		t.Errorf("the file was opened %d times", opened)
	}
}
