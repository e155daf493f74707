// Package shortdir makes folders for the sockets of a test. The path of a socket is
// bounded, and t.TempDir may be too long: it contains the name of the test.
package shortdir

import (
	"os"
	"testing"
)

// New returns a folder with a short path that no other user can enter. It is
// removed when the test ends.
func New(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mega") //nolint:usetesting // see the package
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
