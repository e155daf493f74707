//go:build linux || darwin

package private

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxPath is the maximum length of a socket's path: the size of the system's
// socket address, less the terminating 0.
const MaxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// MakeFolder makes folder, if it does not exist, and checks that no other user
// can add or remove files in it.
func MakeFolder(folder string) error {
	if err := checkParent(filepath.Dir(folder), os.Geteuid()); err != nil {
		return err
	}
	err := os.Mkdir(folder, 0o700)
	if err == nil {
		err = os.Chmod(folder, 0o700) // a umask for files, such as 0177, would leave a folder that nobody can enter
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkFolder(folder, os.Geteuid())
}

// MakeOwnFolder is MakeFolder for a folder that no setting chooses: the error for an
// open one has the remedy.
func MakeOwnFolder(folder string) error { return withRemedy(MakeFolder(folder)) }

func withRemedy(err error) error {
	if errors.Is(err, ErrOpen) {
		return fmt.Errorf("%w: close it with chmod 700", err)
	}
	return err
}

// Check returns an error for a folder in which this process could not make a file after
// MakeFolder, as far as it can be determined without making the folder.
func Check(folder string) error {
	_, err := os.Lstat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(folder)
		return cmp.Or(checkParent(parent, os.Geteuid()), checkWritable(parent))
	}
	return cmp.Or(CheckFolder(folder, os.Geteuid()), checkWritable(folder))
}

// CheckOwn is Check for a folder of MakeOwnFolder.
func CheckOwn(folder string) error { return withRemedy(Check(folder)) }

// CheckFolder returns an error for a folder that does not belong to uid, that
// other users can enter, or that another user could replace.
func CheckFolder(folder string, uid int) error {
	return errors.Join(checkParent(filepath.Dir(folder), uid), checkFolder(folder, uid))
}

// CheckSocket returns the owner of a socket, or an error unless the socket's
// folder and file belong to that user alone. The caller checks the listening
// process itself with [PeerOf].
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

// checkParent returns an error for a parent folder in which a user other than
// uid and root could replace the folder. It follows links in the path, because
// the real location counts.
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

// checkFolder returns an error for a path that is not a folder, for a folder
// that does not belong to uid, and for one that other users can enter. It does
// not follow a link: another user may have made it, to move the sockets
// elsewhere.
func checkFolder(folder string, uid int) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder (%v): remove it", folder, info.Mode())
	case Owner(info) != uid:
		return fmt.Errorf("%s belongs to another user (uid %d): choose one of your own", folder, Owner(info))
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s %w (%v)", folder, ErrOpen, info.Mode())
	}
	return nil
}

// checkWritable returns an error for a folder in which this process may make no file.
func checkWritable(folder string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, folder, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("this user cannot make a file in %s: %w", folder, err)
	}
	return nil
}

// Owner returns the number of the user to whom a file belongs.
func Owner(info fs.FileInfo) int {
	return int(info.Sys().(*syscall.Stat_t).Uid) // its type on every unix
}
