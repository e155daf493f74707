//go:build linux || darwin

package private

import (
	"errors"
	"net"
	"os"
)

// Listen opens a socket that only this user can connect to. It listens at
// temporary, which must not exist, and renames the file to path when the socket
// can answer: a socket at path that refuses connections belongs to a dead
// process. The caller removes the file.
func Listen(temporary, path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove the temporary name
	err = os.Chmod(temporary, 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(temporary))
	}
	return l, nil
}
