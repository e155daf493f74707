//go:build linux || darwin

package rendezvous

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/megaframework/mega/internal/private"
)

// The suffixes of the files beside the socket. The socket has the
// suffix unfinished until it listens. At most one such socket exists, the hub's.
const (
	unfinished = "~"
	locked     = ".lock"
	clients    = ".clients"
)

// The marks of hubs in the folder of the clients. A hub makes the first one before a
// client connects to it, and renames it when it settles. A hub whose lock file was removed
// makes the last one. No client has a name with a dot.
const (
	began   = "hub.began"
	settled = "hub.settled"
	lost    = "hub.lost"
)

// Socket is a socket at which the processes of this user on this node connect.
// Its methods may be called concurrently.
type Socket struct{ path string }

// Open returns the socket at path and creates its folder if that does not exist.
// The folder must belong to this user and be closed to all others.
func Open(path string) (*Socket, error) {
	p, err := find(path)
	if err != nil {
		return nil, err
	}
	return p, p.makeFolders()
}

// Check returns the error that Open would return, as far as it can be
// determined without creating a file.
func Check(path string) error {
	p, err := find(path)
	if err != nil {
		return err
	}
	if err := private.Check(filepath.Dir(p.path)); err != nil {
		return p.unfit(err)
	}
	if _, err := os.Lstat(filepath.Dir(p.path)); errors.Is(err, fs.ErrNotExist) {
		return nil // Open makes it, and the folder of the clients in it
	}
	if err := private.CheckOwn(p.path + clients); err != nil {
		return p.unfitClients(err)
	}
	return nil
}

// find returns an error for a path that cannot be a socket's path, before a
// file is created beside it.
func find(path string) (*Socket, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if n := len(full) + len(unfinished); n > private.MaxPath {
		return nil, fmt.Errorf("socket %s: its path has %d bytes, and the system takes %d: choose a shorter one", full, len(full), private.MaxPath-len(unfinished))
	}
	if info, err := os.Lstat(full); err == nil { // else there is no file, or the check of the folder reports the error
		return &Socket{path: full}, fits(full, info)
	}
	return &Socket{path: full}, nil
}

// fits returns an error if the file at a socket's path is not a socket.
func fits(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("socket %s: it is a folder: choose a path for a socket, such as %s", path, filepath.Join(path, "mega", "cluster.sock"))
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is not a socket (%v): remove it, or choose another path", path, info.Mode())
	}
	return nil
}

func (p *Socket) unfit(err error) error {
	if errors.Is(err, private.ErrOpen) {
		err = fmt.Errorf("%w: choose one below it, which is made as this user's alone", err)
	}
	return fmt.Errorf("socket %s: it needs a folder that is this user's alone: %w", p.path, err)
}

// Path returns the path of the socket.
func (p *Socket) Path() string { return p.path }

// makeFolders creates the missing folders.
func (p *Socket) makeFolders() error {
	folder := filepath.Dir(p.path)
	if err := private.MakeFolder(folder); err != nil {
		return p.unfit(err)
	}
	if err := private.MakeOwnFolder(p.path + clients); err != nil {
		return p.unfitClients(err)
	}
	return nil
}

func (p *Socket) unfitClients(err error) error {
	return fmt.Errorf("socket %s: the folder of its clients: %w", p.path, err)
}

// take opens the file at path, creates it if necessary, and locks it without
// waiting. It makes sure that the locked file is the one at path: a lock on a
// removed file excludes no other process.
func take(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|flags, 0o600)
	if err != nil {
		return nil, err
	}
	err = lockFile(f)
	if err == nil {
		err = sameAs(f, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// errMoved is the error if a file is no longer the one at its path.
var errMoved = errors.New("the file was removed or replaced")

func sameAs(f *os.File, path string) error {
	have, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(have, there) {
		return fmt.Errorf("%s: %w", path, errMoved)
	}
	if err == nil && !have.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file (%v): remove it, or choose another socket", path, have.Mode())
	}
	return err
}

// lockFile takes the flock on f, or returns EWOULDBLOCK. The flock belongs to
// the open file description. Child processes do not inherit it, because Go
// opens files close-on-exec.
func lockFile(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
