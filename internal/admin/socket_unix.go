//go:build linux || darwin

package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/megaframework/mega/internal/private"
)

// Sockets are named <name>.<pid>.sock, and workers' sockets, which only the
// supervisor looks for, <name>.<pid>.worker.sock. A socket has a name with
// pendingPrefix until its process listens. As a result, a socket with the suffix
// that refuses connections belongs to a dead process.
const (
	suffix        = ".sock"
	workerSuffix  = ".worker" + suffix
	pendingPrefix = ".new-"
	maxPending    = time.Minute // the maximum age of a socket or a reserved name whose process does not listen yet
	dialTime      = time.Second
)

// listen opens the socket of a process in the first usable folder, and removes
// the sockets of dead processes from it.
func listen(at place) (*net.UnixListener, string, error) {
	var errs []error
	for _, folder := range at.folders {
		l, path, err := at.listenIn(folder)
		if err == nil {
			return l, path, nil
		}
		errs = append(errs, err)
	}
	return nil, "", fmt.Errorf("open the admin socket: %w", errors.Join(errs...))
}

func (at place) listenIn(folder string) (*net.UnixListener, string, error) {
	if err := private.MakeOwnFolder(folder); err != nil {
		return nil, "", err
	}
	sweep(folder)
	path, err := at.reserve(folder)
	if err != nil {
		return nil, "", err
	}
	l, err := listenAt(path)
	return l, path, err
}

// listenAt opens the socket in place of the empty file at path.
func listenAt(path string) (*net.UnixListener, error) {
	l, err := private.Listen(filepath.Join(filepath.Dir(path), pendingPrefix+randomSuffix()), path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return l, nil
}

// reopen opens a socket again whose file was removed, maybe with its folder. It
// does not replace a file at path: that may be the socket of a process with the same
// number in another container.
func reopen(path string) (*net.UnixListener, error) {
	if err := private.MakeOwnFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := create(path); err != nil {
		return nil, err
	}
	return listenAt(path)
}

// create creates an empty file at path, where no file may be.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// reserve creates an empty file with a name that no other socket of this folder
// has, and returns its path. private.Listen replaces the file by the socket.
func (at place) reserve(folder string) (string, error) {
	for _, extra := range []string{"", "." + randomSuffix(), "." + randomSuffix()} {
		file, err := at.fileName(folder, extra)
		if err != nil {
			return "", err
		}
		path := filepath.Join(folder, file)
		if err := create(path); !errors.Is(err, fs.ErrExist) {
			return path, err
		}
	}
	return "", fmt.Errorf("all socket names of process %d in %s are taken", at.pid, folder)
}

const randomLength = 6

func randomSuffix() string { return strings.ToLower(rand.Text()[:randomLength]) }

// fileName returns the name of a process's socket: with the process's name if
// that fits into private.MaxPath, else with its number alone. The name until the
// process listens has to fit, too. extra distinguishes two sockets of one process.
func (at place) fileName(folder, extra string) (string, error) {
	rest := strconv.Itoa(at.pid) + extra + at.suffix
	for _, file := range []string{fileNameOf(at.name) + "." + rest, rest} {
		if len(folder)+1+max(len(file), len(pendingPrefix)+randomLength) <= private.MaxPath {
			return file, nil
		}
	}
	return "", fmt.Errorf("the path of a socket in %s is longer than %d bytes: set XDG_RUNTIME_DIR to a folder with a shorter path", folder, private.MaxPath)
}

// sweep removes the files of dead processes in a folder. One process sweeps at
// a time: no other process may remove the file, and then reuse its name,
// between the check and the removal.
func sweep(folder string) {
	dir, err := os.Open(folder)
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return // another process sweeps
	}
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return
	}
	for _, e := range entries {
		if path := filepath.Join(folder, e.Name()); dead(path, e) {
			_ = os.Remove(path) // the next sweep tries again
		}
	}
}

// dead reports whether a file in the folder is the socket of a dead process, or the
// left-over of a process that died before it listened.
func dead(path string, e fs.DirEntry) bool {
	info, err := e.Info()
	if err != nil {
		return false
	}
	isSocket := info.Mode().Type() == fs.ModeSocket
	switch {
	case isSocket && isAdmin(e.Name()):
		return refuses(path)
	case isSocket && strings.HasPrefix(e.Name(), pendingPrefix), info.Mode().IsRegular() && info.Size() == 0 && strings.HasSuffix(e.Name(), suffix):
		return time.Since(info.ModTime()) > maxPending
	}
	return false
}

// isAdmin reports whether an admin socket has this name, which contains the pid of
// its process. A hub's socket in the same folder, such as cluster.sock, has none.
func isAdmin(name string) bool {
	_, pid := socketName(name)
	return pid > 0 && strings.HasSuffix(name, suffix)
}

// refuses reports whether no process listens on the socket any more. A process
// that does not answer at once is busy or stopped, but alive.
func refuses(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// sockets returns the admin sockets in the folders that this user can trust,
// except workers' sockets, for which the supervisor answers.
func sockets(folders []string) (paths []string) {
	for _, folder := range folders {
		if trusted(folder, os.Geteuid()) != nil {
			continue
		}
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.Type() == fs.ModeSocket && isAdmin(e.Name()) && !strings.HasSuffix(e.Name(), workerSuffix) {
				paths = append(paths, filepath.Join(folder, e.Name()))
			}
		}
	}
	return paths
}

// Untrusted returns why a search leaves out folders that exist: a process may
// serve in them.
func Untrusted(folders []string) (all []error) {
	for _, folder := range folders {
		if err := trusted(folder, os.Geteuid()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = append(all, err)
		}
	}
	return all
}

// trusted refuses a folder in which another user may have put a socket that
// impersonates a process. Root may use the folder of another user, but not one
// in the place of its own folder.
func trusted(folder string, self int) error {
	if self != 0 {
		return private.CheckFolder(folder, self)
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	owner := private.Owner(info)
	if number, ok := strings.CutPrefix(filepath.Base(folder), tempFolder); ok && number != strconv.Itoa(owner) {
		return fmt.Errorf("%s belongs to another user (uid %d)", folder, owner)
	}
	return private.CheckFolder(folder, owner)
}

// connect dials a socket and checks the owner of the listening process: this
// user, or root. Root trusts a socket whose folder, file and process belong to
// one user; otherwise that user could make root act on another user's process.
func connect(ctx context.Context, path string) (net.Conn, error) {
	self, owner := os.Geteuid(), 0
	if self == 0 {
		var err error
		if owner, err = private.CheckSocket(path); err != nil {
			return nil, fmt.Errorf("root does not trust the socket: %w", err)
		}
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	p, err := private.PeerOf(conn)
	if err == nil && (self == 0 && p.UID != owner || self != 0 && !admits(p.UID, self)) {
		err = fmt.Errorf("%s is served by another user (uid %d)", path, p.UID)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// gone reports whether an error means that the process has ended.
func gone(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}
