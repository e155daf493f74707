//go:build linux || darwin

package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// MaxPath is how long a socket's path may be: what the system's address of one
// has room for, with the 0 at its end.
const MaxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// MakeFolder makes folder, if it is not there, and checks that nobody but this
// user can put something into it or take it away.
func MakeFolder(folder string) error {
	if err := checkParent(filepath.Dir(folder), os.Geteuid()); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkFolder(folder, os.Geteuid())
}

// CheckFolder refuses a folder that is not uid's, that others can enter, or
// that somebody else could replace.
func CheckFolder(folder string, uid int) error {
	return errors.Join(checkParent(filepath.Dir(folder), uid), checkFolder(folder, uid))
}

// CheckParent refuses a folder that is not there yet, where somebody else could
// replace it once it is.
func CheckParent(folder string) error { return checkParent(filepath.Dir(folder), os.Geteuid()) }

// CheckSocket returns the user of a socket whose folder and file belong to that
// user alone, or an error that says what does not. What listens there has to be
// asked with [PeerOf].
func CheckSocket(path string) (uid int, err error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return 0, err
	case info.Mode().Type() != fs.ModeSocket:
		return 0, fmt.Errorf("%s is not a socket (%v)", path, info.Mode())
	}
	uid = Owner(info)
	return uid, CheckFolder(filepath.Dir(path), uid)
}

// checkParent refuses a parent in which somebody but uid and root could replace
// the folder. It follows links in the path: the place counts.
func checkParent(parent string, uid int) error {
	real, err := filepath.EvalSymlinks(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder %s is missing: make it, or choose one that is there: %w", parent, err)
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	shared := info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0
	switch owner := Owner(info); {
	case owner != 0 && owner != uid:
		return fmt.Errorf("%s belongs to another user (uid %d)", real, owner)
	case shared:
		return fmt.Errorf("%s can be written to by other users (%v), who could replace what is in it", real, info.Mode())
	}
	return nil
}

// checkFolder refuses a folder that is not one, is not uid's, or that others
// can enter. It does not follow a link: one in this place was put there by
// somebody who wants the sockets elsewhere.
func checkFolder(folder string, uid int) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder (%v): remove it", folder, info.Mode())
	case Owner(info) != uid:
		return fmt.Errorf("%s belongs to another user (uid %d): choose one of your own", folder, Owner(info))
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be entered by other users (%v): choose one below it, which is made as this user's alone", folder, info.Mode())
	}
	return nil
}

// Owner is the number of the user to whom a file belongs.
func Owner(info fs.FileInfo) int {
	return int(info.Sys().(*syscall.Stat_t).Uid) // what it is on every unix
}
