//go:build linux || darwin

package private_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/megaframework/mega/internal/private"
)

// A umask such as 0177, which is for files, would leave a folder that its owner cannot enter.
func TestFolderCanBeEnteredWhateverTheUmask(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	before := syscall.Umask(0o177)
	err := private.MakeFolder(folder)
	syscall.Umask(before)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}
