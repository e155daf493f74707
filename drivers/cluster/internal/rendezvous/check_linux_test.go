package rendezvous_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/internal/testkit/otheruser"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// unprivileged calls fn as a user to whom permissions apply, and makes that user the
// owner of the paths.
func unprivileged(t *testing.T, fn func(), paths ...string) {
	t.Helper()
	uid := os.Geteuid()
	if uid == 0 {
		uid = otheruser.Nobody
		for _, path := range paths {
			must(t, os.Chown(path, uid, -1))
		}
	}
	otheruser.Do(t, uid, fn)
}

func TestCheckRefusesWhatOpenWould(t *testing.T) {
	for name, x := range map[string]struct {
		make func(dir string) error
		says string
	}{
		"nothing":  {func(string) error { return nil }, ""},
		"a folder": {func(dir string) error { return os.Mkdir(dir+"/x", 0o700) }, ""},
		"a folder of clients": {func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/x", 0o700), os.Mkdir(dir+"/x/s.clients", 0o700))
		}, ""},
		"a parent that is not writable": {func(dir string) error { return os.Chmod(dir, 0o500) }, "permission denied"},
		"a folder that is not writable": {func(dir string) error { return os.Mkdir(dir+"/x", 0o500) }, "permission denied"},
		"clients that everybody reads": {func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/x", 0o700), os.Mkdir(dir+"/x/s.clients", 0o755), os.Chmod(dir+"/x/s.clients", 0o755))
		}, "chmod 700"},
		"clients in a file": {func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/x", 0o700), os.WriteFile(dir+"/x/s.clients", nil, 0o600))
		}, "is not a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortdir.New(t)
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // for its removal
			must(t, x.make(dir))
			var checked, opened error
			made, err := filepath.Glob(dir + "/x/*")
			must(t, err)
			paths := append(made, dir)
			if _, err := os.Lstat(dir + "/x"); err == nil {
				paths = append(paths, dir+"/x")
			}
			unprivileged(t, func() {
				checked = rendezvous.Check(dir + "/x/s")
				_, opened = rendezvous.Open(dir + "/x/s")
			}, paths...)
			if (checked == nil) != (opened == nil) || (opened == nil) != (x.says == "") {
				t.Fatalf("checked: %v; opened: %v", checked, opened)
			}
			if checked != nil && !strings.Contains(checked.Error(), x.says) {
				t.Errorf("got %v, want %q", checked, x.says)
			}
		})
	}
}
